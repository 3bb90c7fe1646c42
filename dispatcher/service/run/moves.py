"""The moves in published plans, for observers: computed from the encoded plans, when an observer reads them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from esd.dispatcher.service.state.plan_history import KeptPlans
from esd.services.domain.plans import DirectRows, FlushPlan, IterationPlan, PlanMessage, Reload, Transfers
from esd.services.domain.watched import MoveReason, Moves, WatchedPlans, WorkerMoves
from esd.services.wire.attend import decode_response

_FOR_NO_WORKER = np.empty(0, np.int64)


def moves_of(kept: KeptPlans, *, ids: bool) -> WatchedPlans:
    """Returns the moves of published plans.

    Args:
        kept: the plans.
        ids: whether the moves have the ids of their rows.
    """
    members = [slot for slot, name in enumerate(kept.workers) if name]
    plans = {slot: decode_response(kept.messages[slot]).messages[0] for slot in members}
    pulled = _Pulled({slot: plan for slot, plan in plans.items() if isinstance(plan, IterationPlan)}, len(kept.workers))
    workers = tuple(
        WorkerMoves(
            worker=kept.workers[slot],
            slot=slot,
            samples=len(plan.labels) if isinstance(plan, IterationPlan) else 0,
            plan_bytes=len(kept.messages[slot]),
            moves=tuple(_moves(plan, pulled, ids=ids)),
        )
        for slot, plan in plans.items()
    )
    return WatchedPlans(kept.epoch, kept.iteration, kept.stage, workers)


class _Pulled:
    """The rows that the workers pull in an iteration, in the order of their ids.

    Args:
        plans: the plan of each slot.
        slots: the number of slots.
    """

    def __init__(self, plans: dict[int, IterationPlan], slots: int) -> None:
        self.slots = slots
        ids = np.concatenate([np.empty(0, np.uint64), *(plan.pulls.ids for plan in plans.values())])
        workers = np.repeat(list(plans), [len(plan.pulls) for plan in plans.values()]).astype(np.int64)
        order = np.argsort(ids, kind="stable")
        self._ids, self._workers = ids[order], workers[order]

    def by(self, ids: NDArray[np.uint64]) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Returns whether any worker pulls each row, bool [r], and how many of them each worker pulls, int64 [n]."""
        begins, ends = (np.searchsorted(self._ids, ids, side) for side in ("left", "right"))
        counts = ends - begins
        places = np.arange(counts.sum()) + np.repeat(begins - (np.cumsum(counts) - counts), counts)
        return counts > 0, np.bincount(self._workers[places], minlength=self.slots)


def _moves(plan: PlanMessage, pulled: _Pulled, *, ids: bool) -> Iterator[Moves]:
    """Yields the moves of one worker's plan, one for each reason that has rows."""
    for reason, gradients, rows, by_worker in _columns(plan, pulled):
        if len(rows):
            yield Moves(reason, gradients, len(rows), by_worker, rows if ids else None)


def _columns(
    plan: PlanMessage, pulled: _Pulled
) -> Iterator[tuple[MoveReason, bool, NDArray[np.uint64], NDArray[np.int64]]]:
    match plan:
        case Reload():
            yield MoveReason.PULL, False, plan.rows.ids, _FOR_NO_WORKER
        case FlushPlan():
            yield MoveReason.FLUSH_PUSH, False, plan.rows.ids, _FOR_NO_WORKER
            yield MoveReason.FLUSH_PUSH, True, plan.gradients.rows.ids, _FOR_NO_WORKER
        case IterationPlan():
            direct, others, peers = _divided(plan.pulls, plan.direct_pulls, pulled.slots)
            yield MoveReason.PULL, False, others, _FOR_NO_WORKER
            yield MoveReason.DIRECT_PULL, False, direct, peers
            direct, others, peers = _divided(plan.update_rows, plan.direct_pushes, pulled.slots)
            yield MoveReason.DIRECT_PUSH, False, direct, peers
            for rows, gradients in ((others, False), (plan.update_gradients.rows.ids, True)):
                wanted, by_worker = pulled.by(rows)
                yield MoveReason.UPDATE_PUSH, gradients, rows[wanted], by_worker
                yield MoveReason.AHEAD_PUSH, gradients, rows[~wanted], _FOR_NO_WORKER
            yield MoveReason.EVICT_PUSH, False, plan.evict_rows.ids, _FOR_NO_WORKER
            yield MoveReason.EVICT_PUSH, True, plan.evict_gradients.rows.ids, _FOR_NO_WORKER
            yield MoveReason.DROP, False, np.concatenate((plan.drops.ids, plan.discards.ids)), _FOR_NO_WORKER


def _divided(
    rows: Transfers, direct: DirectRows, slots: int
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.int64]]:
    """Returns the ids of the direct rows and of the others, and the number of direct rows by peer, int64 [n]."""
    chosen = np.zeros(len(rows), bool)
    chosen[direct.places] = True
    return rows.ids[chosen], rows.ids[~chosen], np.bincount(direct.peers, minlength=slots)
