"""Settings of the dispatcher process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_settings import NoDecode

from esd.dispatcher.core.mechanisms import MECHANISMS
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.mechanisms import parse_mechanism
from esd.services.runtime.quantities import Size
from esd.services.runtime.roles import Role
from esd.services.runtime.settings import PortOrOff, ServerSettings


def split_mechanisms(text: str) -> tuple[str, ...]:
    """Returns the names in a text such as `random,laia`; none for `none`."""
    return () if text == "none" else tuple(name.strip() for name in text.split(",") if name.strip())


def _split(value: object) -> object:
    return split_mechanisms(value) if isinstance(value, str) else value


def check_mechanisms(names: Sequence[str]) -> Sequence[str]:
    """Returns the entries. Raises ValueError if an entry names no mechanism, or its value does not fit."""
    for text in names:
        try:
            name, _ = parse_mechanism(text)
        except InvalidArgument as error:
            raise ValueError(str(error)) from None
        if name not in MECHANISMS:
            raise ValueError(f"mechanism {name!r} is unknown; known are {', '.join(MECHANISMS)}")
    return names


Mechanisms = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split), AfterValidator(check_mechanisms)]


class DispatcherSettings(ServerSettings, env_prefix="ESD_DISPATCHER_"):
    """Environment variables ESD_DISPATCHER_<FIELD>, or the [dispatcher] section of the settings file."""

    role = Role.DISPATCHER

    lease_seconds: float = Field(
        5.0, gt=0, le=3600, description="a worker that sends no heartbeat for this long loses its slot"
    )
    join_seconds: float = Field(
        600.0, gt=0, description="time a new job waits for all its workers to register before it fails"
    )
    rejoin_seconds: float = Field(
        8.0,
        ge=0,
        description="time that the next epoch waits for a lost worker to come back, before it begins without it",
    )
    recovery_seconds: float = Field(
        120.0,
        gt=0,
        description="longest wait for a parameter server that is away or hangs, before the job fails; a second more "
        "for every 8 MiB of its rows, which it loads when it starts",
    )
    storage_seconds: float = Field(
        300.0,
        gt=0,
        description="longest time for which a full or read-only disk may reject samples and checkpoints, before the "
        "job fails",
    )
    driver_seconds: float = Field(
        3600.0,
        gt=0,
        description="time that a job whose stream has not ended runs without a call of its driver, which submits "
        "samples or asks for the job's state, before it fails",
    )
    standstill_warning_seconds: float = Field(
        60.0,
        gt=0,
        description="time for which a job may train nothing while samples wait, before the dispatcher reports the "
        "workers that it waits for",
    )
    standstill_seconds: float = Field(
        1800.0,
        gt=0,
        description="time for which a job may train nothing while samples wait, before it fails; longer than one "
        "iteration and one checkpoint take",
    )
    straggler_factor: float = Field(
        5.0,
        gt=1,
        description="an iteration that takes longer than this many times the median, and at least a second, is late, "
        "and the worker that it waits for is reported",
    )
    queued_batches: int = Field(
        4, ge=1, description="global batches that are accepted ahead of planning; then Submit waits"
    )
    queued_bytes: Size = Field(
        256 * 2**20,
        ge=1,
        description="bytes of samples that are accepted ahead of planning, unless they are less than a global batch; "
        "then Submit waits",
    )
    shadow_mechanisms: Mechanisms = Field(
        ("random", "laia", "hash"),
        description="mechanisms, separated by commas, whose cost on the same stream is computed for comparison, in a "
        "thread of their own, each with a value of its first option if another than the default is meant (laia:text); "
        "none turns it off",
    )
    shadow_bytes: Size = Field(
        512 * 2**20,
        ge=1,
        description="memory that shadow mechanisms may take together, in bytes: each mirrors the workers' caches, and "
        "needs about 150 bytes for each of their rows; those at the end of the list that do not fit are left out",
    )
    decision_log: Path | None = Field(
        None,
        description="file for the inputs of the plans other than the samples (JSON lines), from which `esd simulate "
        "--replay` makes the same plans again; a new job overwrites it",
    )
    plan_history_bytes: Size = Field(
        64 * 2**20,
        ge=1,
        description="length of the latest plans that are kept for observers (WatchPlans), in bytes; older ones are "
        "dropped",
    )
    page_port: PortOrOff = Field(
        None,
        description="port of the page for browsers, on the host of listen; 0 takes any free port, none turns it off",
    )
    max_costs_bytes: Size = Field(
        2**30,
        ge=2**20,
        description="bytes of the cost matrices that HybridDis calls may hold together; a larger matrix is refused, "
        "and a call beyond the others is refused for the moment",
    )
    solver_threads: int = Field(
        default_factory=lambda: os.cpu_count() or 1,
        ge=1,
        description="HybridDis calls that are solved at the same time",
    )
