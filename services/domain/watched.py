"""The plans of all workers as an observer sees them: which rows move, why, and for which workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray


class PlanStage(Enum):
    """The kind of plans that belong together, in the order of stages of one iteration.

    Example:
        >>> esd.PlanStage.CHECKPOINT.value < esd.PlanStage.ITERATION.value
        True
    """

    RELOAD = 1  # the content of the caches, at the beginning of an epoch that follows a checkpoint
    CHECKPOINT = 2  # the flush for a checkpoint, before the plans of the same iteration
    ITERATION = 3  # the plans of an iteration
    END = 4  # the last flush


class MoveReason(Enum):
    """Why rows move.

    Example:
        >>> [reason.name for reason in esd.MoveReason if reason.name.endswith("PUSH")]
        ['UPDATE_PUSH', 'AHEAD_PUSH', 'DIRECT_PUSH', 'EVICT_PUSH', 'FLUSH_PUSH']
    """

    PULL = 1  # from the parameter server, for the samples of this iteration
    DIRECT_PULL = 2  # for these samples, from the worker with the latest version
    UPDATE_PUSH = 3  # to the parameter server, since workers pull the rows, or the sums of gradients, in this iteration
    AHEAD_PUSH = 4  # to the parameter server, before any worker pulls the rows
    DIRECT_PUSH = 5  # to the worker that trains the row now
    EVICT_PUSH = 6  # to the parameter server, since the row leaves the cache
    FLUSH_PUSH = 7  # to the parameter server, for a checkpoint or at the end
    DROP = 8  # leaves the cache without a push, since the parameter server has its value


@dataclass(frozen=True, slots=True)
class Moves:
    """The rows that one worker moves for one reason.

    Attributes:
        reason: why they move.
        gradients: whether partial gradients move in place of rows.
        rows: the number of rows.
        by_worker: int64 [n], by slot: of an update push, how many of the rows that worker pulls in this iteration; of
            direct rows, how many go there or come from there. Empty for other reasons.
        ids: uint64 [rows], their ids; None unless the observer has asked for them.

    Example:
        Of three rows that a worker pushes, the worker in slot 1 pulls all and the worker in slot 2 one.

        >>> moves = esd.Moves(esd.MoveReason.UPDATE_PUSH, False, 3, by_worker=np.array([0, 3, 1]), ids=None)
        >>> np.flatnonzero(moves.by_worker).tolist()
        [1, 2]
    """

    reason: MoveReason
    gradients: bool
    rows: int
    by_worker: NDArray[np.int64]
    ids: NDArray[np.uint64] | None

    def for_workers(self, names: Mapping[int, str]) -> dict[str, int]:
        """Returns the positive counts of `by_worker` by the names of the workers, which are given by slot."""
        return {names[slot]: int(self.by_worker[slot]) for slot in np.flatnonzero(self.by_worker).tolist()}

    def as_json(self, names: Mapping[int, str]) -> dict[str, Any]:
        """Returns the moves as JSON values; `names` has the workers' names by slot."""
        ids = {} if self.ids is None else {"ids": list(map(str, self.ids.tolist()))}
        return {
            "reason": self.reason.name.lower(),
            "gradients": self.gradients,
            "rows": self.rows,
            "by_worker": self.for_workers(names),
            **ids,
        }


@dataclass(frozen=True, slots=True)
class WorkerMoves:
    """All that one worker's plan moves.

    Attributes:
        worker: the name of the worker.
        slot: the slot of the worker.
        samples: the number of its samples in the iteration.
        plan_bytes: the length of its encoded plan.
        moves: the moves, one for each reason that the plan has.

    Example:
        >>> worker = esd.WorkerMoves("edge-1", slot=0, samples=4, plan_bytes=210, moves=())
        >>> sum(moves.rows for moves in worker.moves)
        0
    """

    worker: str
    slot: int
    samples: int
    plan_bytes: int
    moves: tuple[Moves, ...]


@dataclass(frozen=True, slots=True)
class WatchedPlans:
    """Plans of all workers of an epoch that belong together.

    Attributes:
        epoch: the epoch of the plans. After a recovery the iterations that are trained again have a higher one.
        iteration: the iteration; of a flush, the number of iterations before it.
        stage: the kind of the plans.
        workers: the moves of each worker, by slot.

    Example:
        >>> plans = esd.WatchedPlans(epoch=1, iteration=7, stage=esd.PlanStage.ITERATION, workers=())
        >>> plans.position
        (1, 7, 3)
    """

    epoch: int
    iteration: int
    stage: PlanStage
    workers: tuple[WorkerMoves, ...]

    @property
    def position(self) -> tuple[int, int, int]:
        """The place in the order in which the dispatcher publishes plans: epoch, iteration, stage."""
        return self.epoch, self.iteration, self.stage.value

    def as_json(self) -> dict[str, Any]:
        """Returns the plans as JSON values; ids are texts, since many parsers round numbers above 2^53."""
        names = {each.slot: each.worker for each in self.workers}
        return {
            "epoch": self.epoch,
            "iteration": self.iteration,
            "stage": self.stage.name.lower(),
            "workers": [
                {
                    "worker": each.worker,
                    "slot": each.slot,
                    "samples": each.samples,
                    "plan_bytes": each.plan_bytes,
                    "moves": [moves.as_json(names) for moves in each.moves],
                }
                for each in self.workers
            ],
        }
