"""The memory and disk that each service of a run needs, by measured bytes per row (esd.services.domain.footprint)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from esd.advice.row_counts import RowCounts
from esd.dispatcher.service.settings import DispatcherSettings
from esd.run import valkey
from esd.services.domain.footprint import (
    ADMISSION_BYTES,
    CHECKPOINT_COPIES,
    CHECKPOINT_ROW_BYTES,
    DISPATCHER_BYTES,
    DRIVER_BYTES,
    KNOWN_ROW_BYTES,
    NEW_ROW_BYTES,
    REDIS_NEW_ROW_BYTES,
    SERVER_BYTES,
    SERVER_FRAME_BYTES,
    SNAPSHOT_ROW_BYTES,
    TIMED_ROW_BYTES,
    WORKER_HOST_BYTES,
    Footprint,
    filter_bytes,
    planned_bytes,
    redis_bytes,
    stored_bytes,
)
from esd.services.domain.jobs import JobSpec
from esd.services.domain.mechanisms import mechanism_text, parse_mechanism
from esd.services.domain.tables import TableSpec, slots_of_tables

MEMORY = "memory"
REDIS = "redis"


@dataclass(frozen=True, slots=True)
class Services:
    """The services of a run.

    Attributes:
        store: where rows are kept: `memory`, `valkey`, or the URL of a Redis.
        shards: number of parameter servers.
        checkpoint_dir: directory or URL where parameter servers with the memory store keep checkpoints, or the
            directory of a Valkey's data.
        shadows: mechanisms whose cost is computed for comparison; None: as the dispatcher's settings have them.
    """

    store: str = MEMORY
    shards: int = 1
    checkpoint_dir: Path | str | None = None
    shadows: Sequence[str] | None = None


LOCAL = Services()


@dataclass(frozen=True, slots=True)
class Load:
    """The part of a run that needs memory, besides its rows.

    Attributes:
        batch: samples of a worker per iteration.
        cache_rows: rows of the first table that each worker's cache holds.
        sample_bytes: of a sample in a message, in the mean.
        checkpoint_iterations: iterations between two checkpoints; 0: there are none.
    """

    batch: int
    cache_rows: int
    sample_bytes: float
    checkpoint_iterations: float


@dataclass(frozen=True, slots=True)
class Need:
    """The need of one kind of service.

    Attributes:
        service: its name.
        processes: how many there are.
        memory: bytes of each process by their use; of several parameter servers, of the first one, which keeps
            the samples.
        disk: bytes of all of them together.
        device: the device whose memory it is; `cpu` for the machine's.
    """

    service: str
    processes: int
    memory: Mapping[str, int]
    disk: int = 0
    device: str = "cpu"

    @property
    def each(self) -> int:
        """The memory of each process, bytes."""
        return sum(self.memory.values())

    @property
    def together(self) -> int:
        """The memory of all processes, bytes."""
        return self.processes * self.each

    def as_json(self) -> dict[str, Any]:
        """Returns everything as JSON values."""
        return {
            "service": self.service, "processes": self.processes, "memory": dict(self.memory),
            "memory_of_each": self.each, "disk": self.disk, "device": self.device,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Needs:
    """The needs of all services of a run, at most.

    Args:
        job: of the run.
        counts: rows of its tables.
        footprint: of a worker.
        load: samples and caches.
        services: how they are started.
        settings: of the dispatcher.
        device: where workers train.
    """

    job: JobSpec
    counts: RowCounts
    footprint: Footprint
    load: Load
    services: Services
    settings: DispatcherSettings
    device: str = "cpu"
    kinds: tuple[Need, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Adds everything up."""
        redis = (self._redis(),) if self.services.store != MEMORY else ()
        kinds = (*redis, self._servers(), self._dispatcher(), self._workers(), self._driver())
        object.__setattr__(self, "kinds", kinds)

    def of(self, service: str) -> Need:
        """Returns the need of a service. Raises KeyError if the run has no such service."""
        return {need.service: need for need in self.kinds}[service]

    @property
    def local_memory(self) -> int:
        """The memory of all services that a local run starts, as processes of one machine, bytes."""
        return sum(need.together for need in self.local)

    @property
    def local(self) -> tuple[Need, ...]:
        """The needs of memory of this machine in a local run: of all services but a Redis that runs already."""
        running = self.services.store not in (MEMORY, valkey.STORE)
        return tuple(need for need in self.kinds if need.device == "cpu" and not (need.service == REDIS and running))

    def _rows(self, bytes_of: Callable[[TableSpec], float]) -> int:
        tables = zip(self.job.tables, self.counts.tables, strict=True)
        return round(sum(rows.expected * bytes_of(table) for table, rows in tables))

    def _pre_images(self, row: Callable[[TableSpec], float], absent: float) -> int:
        """Returns the bytes of the rows as they were at the oldest checkpoint that is kept."""
        tables = zip(self.job.tables, self.counts.tables, strict=True)
        return round(sum((rows.changed - rows.new) * row(table) + rows.new * absent for table, rows in tables))

    @property
    def _logged_bytes(self) -> int:
        """Samples of an interval between checkpoints, which are kept to be trained again."""
        return round(self.load.checkpoint_iterations * self.job.batch_size * self.load.sample_bytes)

    def _redis(self) -> Need:
        memory = {
            "rows": self._rows(redis_bytes),
            "pre-images": self._pre_images(redis_bytes, REDIS_NEW_ROW_BYTES),
            "samples": 2 * self._logged_bytes,
        }
        return Need(REDIS, 1, memory)

    def _servers(self) -> Need:
        shards, dense = self.services.shards, 3 * self.footprint.dense_bytes
        memory = {"process": SERVER_BYTES, "frames": SERVER_FRAME_BYTES, "dense parameters": dense}
        disk = 0
        if self.services.store == MEMORY:
            memory["rows"] = self._rows(stored_bytes) // shards
            memory["pre-images"] = self._pre_images(stored_bytes, NEW_ROW_BYTES) // shards
            if self.services.checkpoint_dir is None:
                memory["samples"] = 2 * self._logged_bytes
            elif isinstance(self.services.checkpoint_dir, Path):
                copies = self._rows(lambda table: table.row_bytes + CHECKPOINT_ROW_BYTES)
                disk = round(CHECKPOINT_COPIES * copies) + self._snapshot_bytes + 2 * self._logged_bytes + dense
        else:
            written = (max(rows.expected, rows.ids) for rows in self.counts.tables)  # also those that are forgotten
            memory["filter of rows"] = sum(filter_bytes(-(-rows // shards)) for rows in written)
        return Need("parameter server", shards, memory, disk)

    @property
    def _cached_rows(self) -> int:
        """Rows of all caches together, of the tables' smallest rows."""
        return self.job.workers * max(slots_of_tables(self.job.tables, self.load.cache_rows))

    @property
    def _known_bytes(self) -> int:
        """Bytes of a planner for the rows that no worker caches, where it knows them all."""
        timed = TIMED_ROW_BYTES if any(self.job.row_ttls) else 0
        return self.counts.rows * (KNOWN_ROW_BYTES + timed) if self.job.knows_all_rows else 0

    @property
    def _snapshot_bytes(self) -> int:
        rows = max(self._cached_rows, self.counts.rows) if self.job.knows_all_rows else self._cached_rows
        return SNAPSHOT_ROW_BYTES * rows + (ADMISSION_BYTES if self.job.admit_afters else 0)

    def shadows(self) -> int:
        """Returns how many shadow mechanisms the dispatcher computes, which leaves out those that do not fit."""
        listed = self.settings.shadow_mechanisms if self.services.shadows is None else self.services.shadows
        own = mechanism_text(self.job.mechanism, self.job.mechanism_options)
        others = sum(mechanism_text(*parse_mechanism(text)) != own for text in listed)
        return min(others, self.settings.shadow_bytes // self._planner_bytes)

    @property
    def _planner_bytes(self) -> int:
        return planned_bytes(self.job.tables, [self.load.cache_rows] * self.job.workers)

    def _dispatcher(self) -> Need:
        batch_bytes = round(self.job.batch_size * self.load.sample_bytes)
        queued = max(batch_bytes, min(self.settings.queued_bytes, self.settings.queued_batches * batch_bytes))
        memory = {
            "process": DISPATCHER_BYTES,
            "planner": self._planner_bytes + self._known_bytes,
            "shadows": self.shadows() * (self._planner_bytes + self._known_bytes),
            "admission": ADMISSION_BYTES if self.job.admit_afters else 0,
            "samples": self._logged_bytes + queued,
            "snapshot": self._snapshot_bytes if self.load.checkpoint_iterations else 0,
        }
        return Need("dispatcher", 1, memory)

    def _workers(self) -> Need:
        memory = {
            "process and model": round(self.footprint.fixed_bytes),
            "samples": round(self.load.batch * self.footprint.sample_bytes),
            "cached rows": round(self.load.cache_rows * self.footprint.row_bytes),
        }
        return Need("worker", self.job.workers, memory, device=self.device)

    def _driver(self) -> Need:
        return Need("command", 1, {"process": DRIVER_BYTES, "host of the workers": WORKER_HOST_BYTES})
