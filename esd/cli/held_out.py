"""Evaluation beside training: when it happens, how far training may be ahead of it, and when a run stops early.

Every so many iterations the job takes a checkpoint, and the model is scored as it was there, while training goes on.
Training never gets further ahead than to the next evaluation but one: the stream waits there. So every evaluation
happens, its checkpoint is still kept then, and where a run stops early is a function of the stream.
"""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from esd.cli.evaluation import Evaluation, Evaluator
from esd.cli.options import RunOptions
from esd.cli.report import messages
from services.clients.read_ahead import read_ahead
from services.data import Dataset
from services.domain.batches import SampleBatch
from services.domain.errors import FailedPrecondition, InvalidArgument, NotFound
from services.domain.jobs import JobSpec
from services.domain.state import JobState, Quality
from services.runtime.retry import AWAY, repeated
from services.runtime.security import PLAINTEXT, Credentials

_PATIENCE_SECONDS = 60.0  # with parameter servers that are away
_MISSING_SECONDS = 600.0  # without the checkpoint of an evaluation, when all that was submitted is trained

_SMALLER_IS_BETTER = {"loss": True, "normalised_entropy": True, "auc": False, "gauc": False}

Announce = Callable[[str], None]


@dataclass(slots=True)
class EarlyStop:
    """Ends a run that does not get better.

    Attributes:
        metric: a figure of the held-out samples: auc, gauc, loss or normalised_entropy.
        patience: how many evaluations in a row may bring no better one; the run stops at the last of them.
        best: the best so far, and where.
    """

    metric: str
    patience: int
    best: tuple[float, int] = (math.nan, 0)
    _without: int = field(default=0, init=False)

    @classmethod
    def parse(cls, text: str) -> EarlyStop:
        """Reads METRIC:PATIENCE. Raises InvalidArgument."""
        metric, _, patience = text.partition(":")
        if metric not in _SMALLER_IS_BETTER or not patience.isdecimal() or int(patience) < 1:
            raise InvalidArgument(
                f"--early-stop {text!r} is not METRIC:PATIENCE, such as auc:3; the metrics are "
                f"{', '.join(_SMALLER_IS_BETTER)}"
            )
        return cls(metric, int(patience))

    def stops(self, evaluation: Evaluation) -> bool:
        """Takes an evaluation in, and tells whether the run is to end."""
        figure: float = getattr(evaluation.quality, self.metric)
        best = self.best[0]
        better = figure < best if _SMALLER_IS_BETTER[self.metric] else figure > best
        if better or math.isnan(best):
            self.best, self._without = (figure, evaluation.iteration), 0
        else:
            self._without += 1
        return self._without >= self.patience


class HeldOut:
    """The evaluations of one run. Belongs to an event loop; call `seen` with every state, and `finish` in the end.

    Args:
        job: what is trained. It takes a checkpoint every `every` iterations.
        evaluator: scores the samples.
        every: iterations between evaluations; 0: there is one at the end only.
        early_stop: ends the run; None: nothing does.
        announce: is told each result.

    Attributes:
        evaluations: those that were made, in order.
        stopped: whether the run ends early.
    """

    def __init__(
        self, job: JobSpec, evaluator: Evaluator, *, every: int, early_stop: EarlyStop | None, announce: Announce
    ) -> None:
        self.evaluations: list[Evaluation] = []
        self.stopped = False
        self._job = job
        self._evaluator = evaluator
        self._every = every
        self._early_stop = early_stop
        self._announce = announce
        self._done = job.first_iteration  # the evaluations up to this iteration are made, or are given up
        self._running: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._missing_since: float | None = None
        self._begun = False

    async def gate(self, batches: Iterable[SampleBatch], position: int) -> AsyncIterator[SampleBatch]:
        """Yields the batches that begin at sample `position`, each as soon as it may be trained."""
        async for drawn in read_ahead(batches):
            batch = drawn
            while len(batch):
                room = self._allowed() - position
                if room > 0:
                    part, batch = batch[:room], batch[room:]
                    yield part
                    position += len(part)
                elif self.stopped:
                    return
                else:
                    self._raise_if_failed()
                    self._changed.clear()
                    await self._changed.wait()

    def seen(self, state: JobState) -> None:
        """Begins the next evaluation if its checkpoint is there."""
        if not self._every or self.stopped:
            return
        if not self._begun:
            self._begun = True  # what came before this driver was evaluated by another one
            trained = max(0, state.resumed_from - self._job.first_iteration)
            self._done += max(0, trained // self._every - 1) * self._every
            self._changed.set()
        due = self._done + self._every
        if self._running is not None and (not self._running.done() or self._running.exception() is not None):
            return
        if state.checkpoint >= due:
            self._missing_since = None
            self._running = asyncio.create_task(self._evaluate(due), name="evaluate")
        elif (state.iterations_confirmed - self._job.first_iteration) * self._job.batch_size >= self._allowed():
            self._miss(due)

    async def finish(self, iterations: int) -> None:
        """Evaluates the finished model, unless that was done at its last checkpoint."""
        if self._running is not None:
            await self._running
        if not self.evaluations or self.evaluations[-1].iteration != iterations:
            quality = await repeated(self._evaluator.evaluate, _PATIENCE_SECONDS, on=AWAY)
            self._add(Evaluation(iterations, quality))

    async def aclose(self) -> None:
        """Gives up what is not done."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        self._evaluator.close()

    async def _evaluate(self, checkpoint: int) -> None:
        try:
            quality = await repeated(lambda: self._evaluator.evaluate(checkpoint), _PATIENCE_SECONDS, on=AWAY)
        except (FailedPrecondition, NotFound) as error:
            self._announce(f"no evaluation at iteration {checkpoint}: {error}")
        else:
            self._add(Evaluation(checkpoint, quality))
            self._stop_if_no_better()
        finally:
            self._changed.set()
        if not self.stopped:  # else the stream ends where it would wait now
            self._done = checkpoint

    def _stop_if_no_better(self) -> None:
        early_stop = self._early_stop
        if early_stop is not None and early_stop.stops(self.evaluations[-1]):
            self.stopped = True
            best, at = early_stop.best
            self._announce(f"stopping early: the best {early_stop.metric}, {best:.4f}, was at iteration {at}")

    def _add(self, evaluation: Evaluation) -> None:
        self.evaluations.append(evaluation)
        self._announce(f"held out, iteration {evaluation.iteration}: {describe(evaluation.quality)}")

    def _allowed(self) -> int:
        """How many samples of the stream may be submitted now."""
        if not self._every:
            return sys.maxsize
        # A checkpoint is taken when the batch behind it is there, with all that a decision looks at.
        ahead = self._done - self._job.first_iteration + 2 * self._every + self._job.horizon
        return ahead * self._job.batch_size

    def _miss(self, due: int) -> None:
        """Gives an evaluation up whose checkpoint does not come, as when a disk is full."""
        now = time.monotonic()
        if self._missing_since is None:
            self._missing_since = now
        elif now - self._missing_since > _MISSING_SECONDS:
            self._announce(f"no evaluation at iteration {due}: there is no checkpoint")
            self._done, self._missing_since = due, None
            self._changed.set()

    def _raise_if_failed(self) -> None:
        if self._running is not None and self._running.done():
            self._running.result()


@asynccontextmanager
async def watched(
    chosen: RunOptions, job: JobSpec, samples: Dataset | None, credentials: Credentials = PLAINTEXT
) -> AsyncIterator[HeldOut | None]:
    """Makes the evaluations of a job that these options ask for, on these samples; None if there are none.

    Raises:
        NotFound, InvalidArgument: the model cannot be scored here.
    """
    if samples is None:
        yield None
        return
    early_stop = None if chosen.early_stop is None else EarlyStop.parse(chosen.early_stop)
    evaluator = Evaluator(job, samples, credentials)
    held_out = HeldOut(job, evaluator, every=chosen.evaluate_every, early_stop=early_stop, announce=_print)
    try:
        await evaluator.prepare()
        yield held_out
    finally:
        await held_out.aclose()


def _print(line: str) -> None:
    messages.print(line, markup=False, highlight=False, soft_wrap=True)


def describe(quality: Quality) -> str:
    """Returns the figures in one line."""
    within = "" if math.isnan(quality.gauc) else f"GAUC {quality.gauc:.4f}, "
    return (
        f"loss {quality.loss:.4f}, AUC {quality.auc:.4f}, {within}normalised entropy {quality.normalised_entropy:.4f}, "
        f"calibration {quality.calibration:.4f}"
    )
