"""What the job's stream would cost under other mechanisms: a yardstick for the cost of its plans."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from esd.dispatcher.core.planner import Planner
from esd.dispatcher.service.state import job_metrics
from esd.native.engine import BatchIds
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import EsdError
from esd.services.domain.jobs import JobSpec
from esd.services.domain.reports import Registration
from esd.services.domain.state import ShadowCost
from esd.services.runtime.threads import named_threads

# Shadows run beside the planner and never hold it up: when they are this many batches behind, there is no processor for
# them.
_FARTHEST_BEHIND = 256

# Several batches in a row take a mechanism half the time of as many single ones, since its state then stays in the
# processor's caches. So batches wait for others, but not for long where they come slowly.
_TOGETHER = 16
_LONGEST_WAIT_SECONDS = 1.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Followed:
    """A batch of the stream.

    Attributes:
        batch: its samples.
        ids: of these, for all who plan them.
    """

    batch: SampleBatch
    ids: BatchIds


@dataclass(slots=True)
class _Shadow:
    """One mechanism.

    Attributes:
        planner: plans under it.
        cost: of what it has planned.
        batches: the next one to plan, and its lookahead; the thread's.
        degrees: of infrequency, as they are shown.
    """

    planner: Planner
    cost: ShadowCost
    batches: deque[_Followed] = field(default_factory=deque)
    degrees: NDArray[np.float64] | None = None


class Shadows:
    """Plans the stream of one job under other mechanisms, each with mirrored caches of its own, and adds up the cost.

    A shadow sees every batch or it ends: one that had skipped a batch would no longer know its caches. One that looks
    ahead is as many batches behind. Links and workloads are those that the job started with.

    Args:
        mechanisms: the names of the mechanisms; the job's own is left out.
    """

    def __init__(self, mechanisms: Sequence[str]) -> None:
        self._mechanisms = mechanisms
        self._shadows: list[_Shadow] = []
        self._thread = named_threads("esd-shadow")
        self._next = 0
        self._waiting: list[_Followed] = []
        self._in_work = 0  # batches that the thread has
        self._due: asyncio.TimerHandle | None = None  # when the batches that wait have waited long enough

    @property
    def costs(self) -> tuple[ShadowCost, ...]:
        """The cost of every mechanism so far; each may be some iterations behind the plans."""
        return tuple(shadow.cost for shadow in self._shadows)

    def start(self, job: JobSpec, workers: Sequence[Registration]) -> None:
        """Begins with empty caches at iteration 0, with one registration per slot."""
        for mechanism in self._mechanisms:
            if mechanism != job.mechanism:
                links, caches = [w.bandwidth for w in workers], [w.cache_rows for w in workers]
                planner = Planner(job.under(mechanism), links, caches)
                self._shadows.append(_Shadow(planner, ShadowCost(mechanism, 0, 0.0)))

    def follow(self, iteration: int, batch: SampleBatch, ids: BatchIds) -> None:
        """Takes the batch of an iteration, with its ids for all who plan it, and returns at once.

        A batch that was seen before is ignored.
        """
        if not self._shadows or iteration < self._next:
            return
        if iteration > self._next:
            self._end(f"the stream went on at iteration {iteration}, after {self._next}")
        elif self._behind >= _FARTHEST_BEHIND:
            self._end(f"they are {self._behind} batches behind")
        else:
            self._next += 1
            self._waiting.append(_Followed(batch, ids))
            if len(self._waiting) >= _TOGETHER:
                self._plan_waiting()
            elif self._due is None:
                self._due = asyncio.get_running_loop().call_later(_LONGEST_WAIT_SECONDS, self._plan_waiting)

    def close(self) -> None:
        """Takes no more batches. Those that were taken are still planned."""
        self._plan_waiting(ended=True)
        self._thread.shutdown(wait=False)

    @property
    def _behind(self) -> int:
        return self._in_work + len(self._waiting)

    def _plan_waiting(self, *, ended: bool = False) -> None:
        """Gives the batches that wait to the thread; after the end of the stream none is kept as lookahead."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        if (self._waiting or ended) and self._shadows:
            batches, self._waiting = self._waiting, []
            self._in_work += len(batches)
            planning = asyncio.get_running_loop().run_in_executor(self._thread, _plan, self._shadows, batches, ended)
            planning.add_done_callback(partial(self._planned, len(batches)))

    def _planned(self, batches: int, planning: asyncio.Future[list[tuple[int, float]]]) -> None:
        self._in_work -= batches
        error = planning.exception()
        if error is not None:
            self._end(str(error) if isinstance(error, EsdError) else repr(error))
            return
        for shadow, (planned, seconds) in zip(self._shadows, planning.result(), strict=False):  # none after an end
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
    """Plans under each mechanism what it has the lookahead for; runs in the thread.

    Returns:
        How many batches each has planned now, and what they cost.
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
