"""The cost of the job's stream under other mechanisms, for comparison with the cost of its plans."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from esd.dispatcher.core.learned import Snapshot
from esd.dispatcher.core.planner import Planner
from esd.dispatcher.service.state import job_metrics
from esd.native.engine import BatchIds
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import EsdError
from esd.services.domain.footprint import planned_bytes
from esd.services.domain.jobs import JobSpec
from esd.services.domain.mechanisms import mechanism_text, parse_mechanism
from esd.services.domain.reports import Registration
from esd.services.domain.state import ShadowCost
from esd.services.runtime.threads import named_threads

# Shadows must never hold the planner up. Being this many batches behind means that no processor is free for them, and
# the shadows end.
_FARTHEST_BEHIND = 256

# A mechanism plans several batches in a row in half the time that single batches take, since its state then stays in
# the processor's caches. So batches wait until `_TOGETHER` have come, and at most for a second.
_TOGETHER = 16
_LONGEST_WAIT_SECONDS = 1.0

# A job that ends waits for its shadows, so that its last figures are of all iterations, but not for slow ones.
_LAST_WAIT_SECONDS = 5.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Followed:
    """A batch of the stream.

    Attributes:
        batch: its samples.
        ids: the ids of these samples, shared by the planner and all shadows.
    """

    batch: SampleBatch
    ids: BatchIds


@dataclass(slots=True)
class _Shadow:
    """One mechanism.

    Attributes:
        planner: the planner with this mechanism.
        cost: the cost of its plans so far.
        batches: the next batch to plan, and its lookahead; only the shadow thread touches it.
        degrees: the degrees of infrequency in the metrics, float64 [F]; None before the first.
    """

    planner: Planner
    cost: ShadowCost
    batches: deque[_Followed] = field(default_factory=deque)
    degrees: NDArray[np.float64] | None = None


class Shadows:
    """Plans the stream of one job under other mechanisms, each with mirrored caches of its own, and adds up the cost.

    A shadow sees every batch or it ends, because after a skipped batch its mirrored caches would be wrong. A mechanism
    that looks ahead is as many batches late. Links and workloads stay as they were at the start of the job.

    Args:
        mechanisms: entries as `parse_mechanism` reads them; the job's own mechanism is left out.
        most_bytes: memory that all of them may need together when the workers' caches are full.
    """

    def __init__(self, mechanisms: Sequence[str], most_bytes: int) -> None:
        self._mechanisms = mechanisms
        self._most_bytes = most_bytes
        self._left_out: tuple[str, ...] = ()
        self._shadows: list[_Shadow] = []
        self._thread = named_threads("esd-shadow")
        self._next = 0
        self._waiting: list[_Followed] = []
        self._in_work = 0  # batches handed to the thread and not planned yet
        self._due: asyncio.TimerHandle | None = None  # hands the waiting batches to the thread

    @property
    def costs(self) -> tuple[ShadowCost, ...]:
        """The cost under every mechanism so far; each may lag the plans by some iterations."""
        return tuple(shadow.cost for shadow in self._shadows)

    @property
    def left_out(self) -> tuple[str, ...]:
        """The mechanisms whose cost is not computed, because they would need too much memory."""
        return self._left_out

    def start(
        self, job: JobSpec, workers: Sequence[Registration], snapshot: Snapshot | None = None, *, warm: bool = True
    ) -> None:
        """Begins at the job's first iteration. Another call begins anew. Runs in a thread, since planners take a while.

        Args:
            job: the job.
            workers: one registration per slot.
            snapshot: the checkpoint from which the job continues; None means that all caches are empty.
            warm: whether the workers' caches hold the rows of that checkpoint, as in `Planner`.
        """
        links, caches = [worker.bandwidth for worker in workers], [worker.cache_rows for worker in workers]
        rows = Snapshot(snapshot.engine) if snapshot is not None else None  # without what another mechanism has learned
        trained = replace(job, admit_afters=())  # the batches have their admitted ids alone
        self._next = job.first_iteration
        followed = self._fitting(job, caches)
        self._shadows = [
            _Shadow(
                Planner(trained.under(*parse_mechanism(text)), links, caches, snapshot=rows, warm=warm),
                ShadowCost(text, 0, 0.0),
            )
            for text in followed
        ]

    def _fitting(self, job: JobSpec, caches: Sequence[int]) -> Sequence[str]:
        """Returns the mechanisms to follow, as many from the front of the list as fit the memory; notes the others."""
        own = mechanism_text(job.mechanism, job.mechanism_options)
        others = [text for text in self._mechanisms if mechanism_text(*parse_mechanism(text)) != own]
        each = planned_bytes(job.tables, caches)
        fitting = self._most_bytes // each
        self._left_out = tuple(others[fitting:])
        if self._left_out:
            _log.warning(
                "no shadow costs of %s: caches of %d rows in all take %d MiB in each shadow, and "
                "ESD_DISPATCHER_SHADOW_BYTES allows %d MiB",
                ", ".join(self._left_out), sum(caches), each >> 20, self._most_bytes >> 20,
            )  # fmt: skip
        return others[:fitting]

    def follow(self, iteration: int, batch: SampleBatch, ids: BatchIds) -> None:
        """Queues the batch of an iteration for the shadow thread, and returns at once.

        A repeated batch, as after a recovery, is ignored.

        Args:
            iteration: its number. A gap in the numbers ends the shadows.
            batch: its samples, with the ids that are trained.
            ids: the ids of these samples, shared with the planner.
        """
        if not self._shadows or iteration < self._next:
            return
        if iteration > self._next:
            self._end(f"the stream continued at iteration {iteration}, the shadows expected {self._next}")
        elif self._behind >= _FARTHEST_BEHIND:
            self._end(f"they are {self._behind} batches behind")
        else:
            self._next += 1
            self._waiting.append(_Followed(batch, ids))
            if len(self._waiting) >= _TOGETHER:
                self._plan_waiting()
            elif self._due is None:
                self._due = asyncio.get_running_loop().call_later(_LONGEST_WAIT_SECONDS, self._plan_waiting)

    async def finish(self) -> None:
        """Waits until the whole stream is planned, at most for a few seconds; no batch may follow."""
        planning = self._plan_waiting(ended=True)
        if planning is not None:
            await asyncio.wait([planning], timeout=_LAST_WAIT_SECONDS)

    def close(self) -> None:
        """Stops following the stream. The batches that were queued are still planned."""
        self._plan_waiting(ended=True)
        self._thread.shutdown(wait=False)

    @property
    def _behind(self) -> int:
        return self._in_work + len(self._waiting)

    def _plan_waiting(self, *, ended: bool = False) -> asyncio.Future[list[tuple[int, float]]] | None:
        """Hands the waiting batches to the thread; at the end of the stream no batch is kept as lookahead.

        Returns:
            The result of `_plan`, when the thread has it; None: there is nothing to plan.
        """
        if self._due is not None:
            self._due.cancel()
            self._due = None
        if not self._shadows or not (self._waiting or ended):
            return None
        batches, self._waiting = self._waiting, []
        self._in_work += len(batches)
        planning = asyncio.get_running_loop().run_in_executor(self._thread, _plan, self._shadows, batches, ended)
        planning.add_done_callback(partial(self._planned, len(batches)))
        return planning

    def _planned(self, batches: int, planning: asyncio.Future[list[tuple[int, float]]]) -> None:
        self._in_work -= batches
        error = planning.exception()
        if error is not None:
            self._end(str(error) if isinstance(error, EsdError) else repr(error))
            return
        for shadow, (planned, seconds) in zip(self._shadows, planning.result(), strict=False):  # empty after `_end`
            shadow.cost = ShadowCost(
                shadow.cost.mechanism, shadow.cost.iterations + planned, shadow.cost.cost_seconds + seconds
            )
            job_metrics.shadowed(shadow.cost.mechanism, seconds)
            shadow.degrees = job_metrics.ranked(shadow.planner, shadow.degrees)

    def _end(self, cause: str) -> None:
        if self._shadows:
            _log.warning("no shadow costs any more: %s", cause)
        self._shadows = []
        self._waiting = []


def _plan(shadows: Sequence[_Shadow], batches: Sequence[_Followed], ended: bool) -> list[tuple[int, float]]:
    """Plans, under each mechanism, the batches whose lookahead is complete; runs in the thread.

    Returns:
        For each mechanism the number of batches planned by this call, and their cost in seconds.
    """
    return [_plan_one(shadow, batches, ended) for shadow in shadows]


def _plan_one(shadow: _Shadow, batches: Sequence[_Followed], ended: bool) -> tuple[int, float]:
    waiting, lookahead = shadow.batches, shadow.planner.lookahead
    waiting.extend(batches)
    planned, seconds = 0, 0.0
    while len(waiting) > (0 if ended else lookahead):
        followed = waiting.popleft()
        later = [each.batch for each in islice(waiting, lookahead)]
        seconds += shadow.planner.plan(followed.batch, later, ids=followed.ids).cost_seconds
        planned += 1
    return planned, seconds
