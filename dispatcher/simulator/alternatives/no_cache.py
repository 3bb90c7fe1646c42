"""No cache at all: every row comes from the parameter server and goes back, coalesced or not (SCARS §II.A)."""

from __future__ import annotations

import numpy as np

from dispatcher.core.operations import Operations
from dispatcher.simulator.alternatives.protocol import Traffic, Trained


class NoCache:
    """Pulls the rows of a micro-batch and pushes their gradients in every iteration.

    Coalesced, a row that several samples of a worker share is moved once; uncoalesced, once per sample and field.
    """

    lookahead = 0

    def __init__(self, workers: int, *, coalesced: bool) -> None:
        self._workers = workers
        self._coalesced = coalesced
        self._lookups = self._distinct = 0

    def step(self, trained: Trained, /) -> Traffic:
        """Counts distinct ids, or all of them."""
        ids = [trained.ids_of(j) for j in range(self._workers)]
        distinct = [len(np.unique(of_worker)) for of_worker in ids]
        self._lookups += trained.ids.size
        self._distinct += sum(distinct)
        rows = np.array(distinct if self._coalesced else [of_worker.size for of_worker in ids], np.int64)
        operations = Operations(rows, rows, np.zeros_like(rows))
        return Traffic(operations, np.zeros(self._workers), int(rows.sum()), 0)

    def figures(self) -> dict[str, float]:
        """What coalescing saves: ids per distinct id of a micro-batch."""
        return {"ids_per_distinct_id": self._lookups / max(1, self._distinct)}
