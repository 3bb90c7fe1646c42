"""What a stream cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dispatcher.core.operations import Operations


@dataclass(frozen=True, slots=True)
class Totals:
    """What a stream cost. The flushes at checkpoints and at its end are counted beside the operations, not among them.

    Attributes:
        iterations: planned iterations.
        samples: samples in them.
        operations: rows moved, per worker and kind.
        moved_bytes: the same in bytes.
        flush_push: int64 [n], rows pushed for checkpoints and at the end of the stream.
        cost_seconds: sum of T_j over all operations (ESD eq. 4).
        makespan_seconds: sum over iterations of the slowest worker's link time and computation.
        workloads: float64 [n], mean samples of each worker per iteration.
        expected_cost_seconds: sum of the mechanism's own estimates, 0 when it makes none.
        lookups: (row, worker) pairs trained.
        hits: of these, with the latest version in the worker's cache.
        forgotten_rows: that left the table to keep it within its limit.
        decision_median_seconds: of one decision, batch to plans.
        decision_p99_seconds: the 99th percentile of the same.
    """

    iterations: int
    samples: int
    operations: Operations
    moved_bytes: Operations
    flush_push: NDArray[np.int64]
    cost_seconds: float
    makespan_seconds: float
    workloads: NDArray[np.float64]
    expected_cost_seconds: float
    lookups: int
    hits: int
    forgotten_rows: int
    decision_median_seconds: float
    decision_p99_seconds: float

    @property
    def hit_ratio(self) -> float:
        """Hits per lookup, 0 for an empty stream."""
        return self.hits / self.lookups if self.lookups else 0.0
