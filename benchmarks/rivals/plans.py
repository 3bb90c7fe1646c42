"""The proposals of `esd plan` for topologies, on a machine as slow as their machines."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from benchmarks.quality.dense import OPTIONS
from benchmarks.rivals.topologies import Topology
from benchmarks.services_on_machines import ESD
from testbed.processor_shares import ProcessorShare

OURS = {
    "esd": ("auto", "low-rank:8"),  # the exact way that suits the links, and another optimizer
    "esd-averages": ("every:64",),  # as inexact as local SGD in its dense parameters; rows are exact
}
_PROFILED = "20000"  # samples
_MEMORY = "2g"
_LONGEST_PLAN = 1200.0  # seconds


@dataclass(frozen=True, slots=True)
class Plan:
    """The fastest team and way of its answers.

    Attributes:
        options: of `esd train`, by their names without dashes.
        machines: the numbers of its machines.
        seconds: that it predicts for an iteration at most.
        least_seconds: that it predicts at least.
        alone_seconds: that it predicts for an iteration of one machine without services.
        pays: whether it predicts that the team is faster than that, in any case.
        may_pay: whether it predicts that it may be.
    """

    options: dict[str, Any]
    machines: tuple[int, ...]
    seconds: float
    least_seconds: float
    alone_seconds: float
    pays: bool
    may_pay: bool


def plans(
    data: str,
    ours: str,
    batch: int,
    topologies: Mapping[str, Topology],
    workers: int,
    shares: Sequence[ProcessorShare],
) -> dict[str, Plan]:
    """Plans several topologies at once, each in a share of a processor.

    Args:
        data: the data set.
        ours: one of `OURS`, by which the dense gradients may be summed.
        batch: samples of an iteration, of all machines.
        topologies: by their names.
        workers: machines of each.
        shares: as many as there are topologies.
    """

    def best(name: str, share: ProcessorShare) -> tuple[str, Plan]:
        answers = (_plan(data, batch, topologies[name], workers, dense, share) for dense in OURS[ours])
        return name, min(answers, key=_seconds)

    with ThreadPoolExecutor(len(topologies)) as threads:
        return dict(threads.map(best, topologies, shares))


def _seconds(plan: Plan) -> float:
    return plan.seconds


def _plan(data: str, batch: int, topology: Topology, workers: int, dense: str, share: ProcessorShare) -> Plan:
    job = ("--data", data, "--model", OPTIONS.model, "--dim", str(OPTIONS.dim), "--hidden", OPTIONS.hidden)
    sizes = ("--workers", str(workers), "--batch", str(batch // workers), "--dense", dense)
    network = ("--links", topology.links, "--round-trip", str(topology.round_trip))
    profile = ("--samples", _PROFILED, "--count", _PROFILED, "--memory", _MEMORY)
    command = [ESD, "plan", *job, *sizes, *network, *profile, "--checkpoint-every", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:  # noqa: S603
        share.hold(process.pid)
        try:
            answer, errors = process.communicate(timeout=_LONGEST_PLAN)
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise RuntimeError(f"esd plan failed: {errors}")
    fastest = json.loads(answer)["fastest"]
    return Plan(
        fastest["options"],
        tuple(fastest["machines"]),
        seconds=batch * fastest["seconds"],
        least_seconds=batch * fastest["least_seconds"],
        alone_seconds=batch * fastest["alone_seconds"],
        pays=fastest["pays"],
        may_pay=fastest["may_pay"],
    )
