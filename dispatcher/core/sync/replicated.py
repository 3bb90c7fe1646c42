"""Planning where all workers train the hottest rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from esd.dispatcher.core.sync.way import SyncContext, SyncPlanning
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.jobs import JobSpec
from esd.services.domain.sync import Sync

if TYPE_CHECKING:
    from esd.native.engine import IterationColumns, Way


class ReplicatedPlanning(SyncPlanning):
    """The members replicate rows, whose gradients they sum with all others."""

    def __init__(self, job: JobSpec, context: SyncContext) -> None:
        """Raises InvalidArgument when replicated rows leave no room in some cache."""
        super().__init__(job, context)
        check_room(job.sync, context.cache_rows)

    def way(self) -> Way:
        """Returns the engine's part."""
        return self.engines.Replicated(
            room=self.context.sizes.cache_room(self.job.sync.pinned_rows),
            workers=list(self.context.members),
            seed=self.job.seed,
            first_iteration=self.job.first_iteration,
        )

    def reduced_bytes(self, columns: IterationColumns) -> NDArray[np.int64]:
        """Returns the bytes that each worker sends to sum their gradients with all others, int64 [n]."""
        rows = zip(columns.figures.tolist(), self.job.tables, strict=True)
        floats = sum(count * table.dimension for count, table in rows)
        members = self.context.members
        reduced = super().reduced_bytes(columns)
        reduced[list(members)] = self.job.dense_sum.sent_bytes(floats, len(members))
        return reduced


def check_room(sync: Sync, cache_rows: Sequence[int]) -> None:
    """Refuses rows that leave no room in the smallest cache. Raises InvalidArgument, whose message names both."""
    least = min(cache_rows)
    if sync.pinned_rows >= least:
        raise InvalidArgument(
            f"{sync.pinned_rows} rows are to be replicated (--sync {sync}), and the smallest cache holds {least}: "
            "choose fewer, or larger caches (--cache-rows, --cache-ratio)"
        )
