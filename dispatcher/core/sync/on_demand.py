"""Planning on demand, with or without rows that go straight from worker to worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from esd.dispatcher.core.sync.way import SyncPlanning

if TYPE_CHECKING:
    from esd.native.engine import IterationColumns, Way


class OnDemandPlanning(SyncPlanning):
    """Rows move when they are needed."""

    def way(self) -> Way:
        """Returns the engine's part."""
        return self.engines.OnDemand(direct=self.job.sync.delivers)

    def direct(self, columns: IterationColumns) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the rows, and their bytes, that each worker sends straight to another, int64 [n] each."""
        if not self.job.sync.delivers:
            return super().direct(columns)
        by_table = columns.direct
        sizes = np.array([table.row_transfer_bytes for table in self.job.tables], np.int64)
        return by_table.sum(axis=0), sizes @ by_table
