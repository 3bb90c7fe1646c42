"""Worker-to-worker transfers: on-demand synchronisation without the detour over the server (Herald App. B)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dispatcher.core.cost_model import Operations
from dispatcher.simulator.alternatives.alternative import Traffic, Trained


class PeerToPeer:
    """An owned row that exactly one other worker needs goes to it directly; everything else as planned.

    A direct transfer occupies both links at the same time, so it costs what it takes on the slower one, where push and
    pull cost both one after the other. Rows with several readers and partial gradients go over the server.
    """

    lookahead = 0

    def __init__(self, transfer_seconds: NDArray[np.float64]) -> None:
        """Takes T_j, float64 [n]: seconds to move a row over each worker's link."""
        self._transfer_seconds = transfer_seconds
        self._direct = self._server_rows = 0

    def step(self, trained: Trained, /) -> Traffic:
        """Takes the direct transfers out of the plans' pushes and pulls."""
        plans = trained.decision.plans
        pulled = np.concatenate([plan.pulls.ids for plan in plans])
        puller = np.repeat(np.arange(len(plans)), [len(plan.pulls) for plan in plans])
        ids, first, readers = np.unique(pulled, return_index=True, return_counts=True)
        single, reader = ids[readers == 1], puller[first[readers == 1]]

        planned = trained.decision.operations
        pushes, pulls = planned.update_push.copy(), planned.miss_pull.copy()
        peer_rows = np.zeros(len(plans))
        for owner, plan in enumerate(plans):
            receivers = reader[np.isin(single, plan.update_rows.ids)]
            pushes[owner] -= len(receivers)
            np.subtract.at(pulls, receivers, 1)
            slower = np.where(self._transfer_seconds[receivers] > self._transfer_seconds[owner], receivers, owner)
            np.add.at(peer_rows, slower, 1.0)
        operations = Operations(pulls, pushes, planned.evict_push)
        self._direct += int(peer_rows.sum())
        self._server_rows += int(operations.total.sum())
        return Traffic(operations, peer_rows, trained.decision.lookups, trained.decision.hits)

    def figures(self) -> dict[str, float]:
        """Returns how many rows went directly, and how many still go over the server."""
        return {"direct_rows": self._direct, "server_rows": self._server_rows}
