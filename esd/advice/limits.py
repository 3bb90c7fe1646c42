"""The limits that a run will meet, told before it starts."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from esd.advice.needs import REDIS, Needs
from esd.ps_server.service.settings import ParameterServerSettings
from esd.ps_server.stores.redis.room import RedisRoom
from esd.services.domain.errors import InvalidArgument

_FALSE_ADMISSIONS = 0.01  # share of new ids that are admitted at once, from which on it is reported


@dataclass(frozen=True, slots=True)
class Machine:
    """The free memory and disk of this machine.

    Attributes:
        memory: bytes that it can give to new processes.
        disk: bytes of the disk of the checkpoint directory; None: there is none.
        redis: memory of the Redis that keeps the rows; None: there is none.
    """

    memory: float
    disk: int | None = None
    redis: RedisRoom | None = None


def free_memory() -> float:
    """Returns the bytes that this machine can give to new processes.

    Raises:
        InvalidArgument: this system does not report it.
    """
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return 1024.0 * int(line.split()[1])
    raise InvalidArgument("this system does not report how much memory is free: give --memory")


def free_disk(directory: Path) -> int:
    """Returns the free bytes of the disk on which a directory is, or will be made."""
    existing = next(path for path in (directory.absolute(), *directory.absolute().parents) if path.exists())
    return shutil.disk_usage(existing).free


def limits_met(needs: Needs, machine: Machine, settings: ParameterServerSettings) -> tuple[str, ...]:
    """Returns a sentence for each limit that the run will meet, with the knob that moves it."""
    return (*_of_tables(needs), *_of_stores(needs, machine, settings), *_of_memory(needs, machine))


def _of_tables(needs: Needs) -> Iterator[str]:
    job, counts = needs.job, needs.counts
    if job.max_rows and not job.rows_kept and counts.rows > job.max_rows:
        samples = counts.growth.samples_for(job.max_rows)
        yield (
            f"the tables will have {counts.rows:,} rows, and --max-rows allows {job.max_rows:,}: the run ends after "
            f"about {samples:,.0f} samples; raise it, or let it forget rows (--at-max-rows forget)"
        )
    if counts.initial_error >= _FALSE_ADMISSIONS:
        yield (
            f"--admit-after admits {counts.initial_error:.0%} of the new ids at once in the end, because its counts "
            "are full of other ids: hash ids to fewer, or choose a larger number"
        )


def _of_stores(needs: Needs, machine: Machine, settings: ParameterServerSettings) -> Iterator[str]:
    dense = needs.footprint.dense_bytes
    if dense > settings.max_dense_bytes:
        yield (
            f"the model has {_size(dense)} of dense parameters, and a parameter server takes "
            f"{_size(settings.max_dense_bytes)}: the job is refused at its start; raise "
            f"{settings.variable('max_dense_bytes')}"
        )
    if machine.disk is not None:
        disk = needs.of("parameter server").disk
        if disk > machine.disk:
            yield (
                f"the checkpoint directory takes up to {_size(disk)}, and its disk has {_size(machine.disk)} free: "
                "choose another --checkpoint-dir, or fewer rows"
            )
    if machine.redis is not None:
        rows, redis = needs.of(REDIS).each, machine.redis
        if rows > redis.free_bytes:
            limit = "its maxmemory leaves" if redis.limited else "its machine has"
            yield (
                f"Redis at {redis.address} takes up to {_size(rows)}, and {limit} {_size(redis.free_bytes)}: raise "
                "its maxmemory, add nodes, or train fewer rows"
            )


def _of_memory(needs: Needs, machine: Machine) -> Iterator[str]:
    if needs.local_memory > machine.memory:
        largest = max(needs.local, key=lambda need: need.together)
        yield (
            f"all services as processes of this machine take up to {_size(needs.local_memory)}, and it has "
            f"{_size(machine.memory)} free; most of it is for the {largest.service}, {_size(largest.together)}: give "
            "workers less (--memory), or start the services on several machines (esd serve)"
        )


def _size(count: float) -> str:
    return f"{count / 2**30:,.2f} GiB" if count >= 2**30 else f"{count / 2**20:,.0f} MiB"
