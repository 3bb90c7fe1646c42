"""`--hot-batches`: samples that need replicated rows alone in mini-batches of their own (SCARS §III)."""

from __future__ import annotations

from esd.data import Dataset
from esd.data.hot_batches import HotBatches, ReplicatedRows
from esd.dispatcher.core.cost_model import RowSizes
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.jobs import JobSpec


def in_hot_batches(dataset: Dataset, job: JobSpec, patience: int) -> HotBatches:
    """Returns the samples of a job in hot and normal mini-batches.

    Args:
        dataset: its samples, all epochs of them.
        job: which rows it replicates, and how large its batches are.
        patience: batches that a sample waits for others of its kind.

    Raises:
        InvalidArgument: the job replicates no rows.
    """
    if not job.sync.pinned_rows:
        raise InvalidArgument(f"--hot-batches {patience} needs rows that all workers have: --sync replicated:R")
    sizes = RowSizes(job.tables, job.features)
    rows = ReplicatedRows(sizes.cache_room(job.sync.pinned_rows), sizes.of_tables, job.workers, job.seed)
    return HotBatches(dataset, batch_size=job.batch_size, patience=patience, rows=rows)
