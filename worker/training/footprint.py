"""Measures the needs of a job on this machine: memory of a row and of a sample, time of a step and of a sample.

SCARS §II.B: memory must be measured, because frameworks allocate more than the requested arrays.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from esd.services.domain.footprint import Footprint
from esd.services.domain.jobs import JobSpec
from esd.services.domain.plans import IterationPlan
from esd.services.domain.tables import TableSpec
from esd.worker.core.cache_book import CacheBook
from esd.worker.models import trained_shapes
from esd.worker.training.device import prepare_device
from esd.worker.training.reducer import Alone
from esd.worker.training.rows import RowCache
from esd.worker.training.trainer import Trainer

_CACHE_BYTES = 64e6  # of the cache that measures the memory of a row
_ROW_VALUE = 1e-3  # stands for the values of parameter servers


@dataclass(frozen=True, slots=True)
class _Run:
    samples: int
    seconds: float  # of a step, the median
    slowness: float  # seconds that a second of the processor takes
    peak_bytes: int


def measure_footprint(
    job: JobSpec, small: Sequence[IterationPlan], large: Sequence[IterationPlan], device_name: str, threads: int
) -> Footprint:
    """Trains a few iterations of two sizes. Call it in a separate process, whose memory it measures.

    Args:
        job: a job of one worker.
        small: its plans of a few iterations, beginning with an empty cache; the first is not timed.
        large: other plans, of iterations with more samples.
        device_name: `cpu` or `cuda:N`.
        threads: threads of torch's CPU kernels.

    Raises:
        FailedPrecondition: the device does not exist.
        InvalidArgument: the model does not exist, or cannot train the job's samples.
        ResourceExhausted: the device has too little memory.
    """
    device = prepare_device(device_name, threads)
    rows = [_weigh_row(table, device) for table in job.tables]
    runs = [_train(job, plans, device) for plans in (small, large)]
    few, many = runs
    grown = many.samples - few.samples
    cached = [float(np.dot(_slots(job, plans), rows)) for plans in (small, large)]
    # The room of a cache is counted in transferred bytes, so the table with the most memory per such byte decides.
    row_bytes = max(
        weight * job.table.row_transfer_bytes / table.row_transfer_bytes
        for table, weight in zip(job.tables, rows, strict=True)
    )
    sample_bytes = max(0.0, (many.peak_bytes - cached[1] - few.peak_bytes + cached[0]) / grown)
    sample_seconds = max(0.0, (many.seconds - few.seconds) / grown)
    return Footprint(
        fixed_bytes=max(0.0, few.peak_bytes - cached[0] - few.samples * sample_bytes),
        row_bytes=row_bytes,
        sample_bytes=sample_bytes,
        step_seconds=max(0.0, few.seconds - few.samples * sample_seconds),
        sample_seconds=sample_seconds,
        dense_shapes=trained_shapes(job),
        slowness=many.slowness,
    )


def _train(job: JobSpec, plans: Sequence[IterationPlan], device: torch.device) -> _Run:
    _forget_peak(device)
    slots = _slots(job, plans)
    caches = [RowCache(each, table.row_width, device) for each, table in zip(slots, job.tables, strict=True)]
    trainer = Trainer(job, caches, Alone(), device)
    seconds = []
    begin, processor = time.monotonic(), time.process_time()
    for plan in plans:
        for cache, pulls in zip(caches, plan.pulls.by_table(len(caches)), strict=True):
            staging = cache.staging(len(pulls))
            staging.fill(_ROW_VALUE)
            cache.write(pulls.slots, staging)
        result = trainer.step(plan)
        seconds.append(result.times.compute + result.times.update)
    slowness = (time.monotonic() - begin) / max(time.process_time() - processor, 1e-3)
    return _Run(plans[0].batch_size, statistics.median(seconds[1:]), slowness, _peak(device))


def _slots(job: JobSpec, plans: Sequence[IterationPlan]) -> list[int]:
    """Returns the number of slots of each table that the plans use."""
    used = zip(*(plan.rows_by_table(len(job.tables)) for plan in plans), strict=True)
    return [1 + max(int(each.slots.max(initial=0)) for each in of_table) for of_table in used]


def _weigh_row(table: TableSpec, device: torch.device) -> float:
    """Returns the memory of a cached row, with its entry in the cache book if both are on the host."""
    slots = int(_CACHE_BYTES / table.row_bytes) + 1
    before = _used(device)
    cache = RowCache(slots, table.row_width, device)
    cache.rows.fill_(_ROW_VALUE)  # the system provides memory only when it is written
    book = CacheBook([slots], 0, 0)
    taken = _used(device) - before
    del cache, book
    return max(float(table.row_bytes), taken / slots)


def _used(device: torch.device) -> int:
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else _status("VmRSS")


def _peak(device: torch.device) -> int:
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else _status("VmHWM")


def _forget_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    with suppress(OSError):  # a container may forbid it; the larger run still has a peak of its own
        Path("/proc/self/clear_refs").write_text("5")


def _status(name: str) -> int:
    """Returns a size of this process, in bytes, as the kernel counts it."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return 1024 * int(line.split()[1])
    raise OSError(f"/proc/self/status has no {name}")
