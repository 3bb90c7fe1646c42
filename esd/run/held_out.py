"""Evaluation beside training: when it happens, how far training may be ahead of it, and when a run stops early.

Every so many iterations the job takes a checkpoint, and the model is scored as it was there, while training goes on.
Training never gets further ahead than to the next evaluation but one: the stream waits there. So every evaluation
happens, its checkpoint is still kept then, and where a run stops early is a function of the stream.

The dispatcher records the figures and keeps them with the job's checkpoints. A driver that is started again begins with
them, and makes the missing evaluations: it stops at the iteration at which an undisturbed driver would have stopped.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager

from esd.run.early_stop import EarlyStop
from esd.run.evaluation import Evaluator
from esd.run.events import Evaluated, EvaluationMissed, EvaluationsNotKept, Listener, StoppingEarly, ignore
from esd.run.options import RunOptions
from esd.run.patience import PATIENCE_SECONDS, Patience
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.clients.read_ahead import read_ahead
from esd.services.domain.batches import SampleBatch
from esd.services.domain.cuts import Cuts
from esd.services.domain.errors import EsdError, FailedPrecondition, InvalidArgument, NotFound
from esd.services.domain.jobs import JobSpec
from esd.services.domain.state import KEPT_EVALUATIONS, Evaluation, JobState, Quality, Ranking
from esd.services.runtime.retry import AWAY, repeated
from esd.services.runtime.security import PLAINTEXT, Credentials

_MISSING_SECONDS = 600.0  # without the checkpoint of an evaluation, when all that was submitted is trained


class HeldOut:
    """The evaluations of one run. Belongs to an event loop; call `seen` with every state, and `finish` in the end.

    Args:
        job: the job. It takes a checkpoint every `every` iterations.
        evaluator: scores the samples.
        client: of the dispatcher, which keeps the figures.
        every: iterations between evaluations; 0: there is one at the end only.
        early_stop: ends the run; None: nothing does.
        listener: gets each evaluation, and why one is missing.
        name: names the samples; empty: an earlier driver's samples are not compared with them.
        evaluated: is called with each evaluation at a checkpoint, and ends before the checkpoint may be dropped.

    Attributes:
        evaluations: those that were made, in order; also by an earlier driver of the job.
        stopped: whether the run ends early.
    """

    def __init__(
        self,
        job: JobSpec,
        evaluator: Evaluator,
        client: AsyncDispatcherClient,
        *,
        every: int,
        early_stop: EarlyStop | None,
        listener: Listener = ignore,
        name: str = "",
        evaluated: Callable[[Evaluation], Awaitable[None]] | None = None,
    ) -> None:
        self.evaluations: list[Evaluation] = []
        self.stopped = False
        self._job = job
        self._evaluator = evaluator
        self._client = client
        self._every = every
        self._cuts = Cuts(job.first_iteration, every)
        self._early_stop = early_stop
        self._listener = listener
        self._name = name
        self._evaluated = evaluated
        self._done = job.first_iteration  # the evaluations up to this iteration are made, or are given up
        self._running: asyncio.Task[None] | None = None
        self._recording: asyncio.Task[None] | None = None
        self._not_recorded = ""  # why, as it was reported
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
        """Begins the next evaluation if its checkpoint exists, and records evaluations that the dispatcher lacks.

        Raises:
            InvalidArgument: an earlier driver of the job has evaluated other samples.
        """
        if not self._begun:
            self._begin(state)
        self._record_unknown(state)
        if not self._every or self.stopped:
            return
        due = self._cuts.after(self._done)
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
            self._add(iterations, *await Patience(self._listener).until_done(self._evaluator.evaluate))
        await self._record(self.evaluations[-KEPT_EVALUATIONS:])

    async def aclose(self) -> None:
        """Cancels an evaluation that is not done, and ends the thread."""
        tasks = [task for task in (self._running, self._recording) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._evaluator.close()

    def _begin(self, state: JobState) -> None:
        """Takes over the evaluations of an earlier driver of the job.

        Raises:
            InvalidArgument: they are of other samples, so that no series and no early stop can be made of both.
        """
        self._begun = True
        if not self._every:
            return
        for each in state.evaluations:
            if self._name and each.samples not in ("", self._name):
                raise InvalidArgument(
                    f"the model was evaluated at iteration {each.iteration} with other held-out samples: they were "
                    f"{each.samples}, now they are {self._name}; repeat the job with the former, or leave "
                    "--evaluate-every out and evaluate the finished model"
                )
            self.evaluations.append(each)
            self._done = each.iteration
            self._stop_if_no_better()
            if self.stopped:
                self._done -= self._every  # the stream ends where it would wait
                break
        else:
            # Of a checkpoint that nobody has evaluated, it and the one before it are kept.
            self._done = max(self._done, self._cuts.latest(state.resumed_from) - 2 * self._every)
        self._changed.set()

    def _record_unknown(self, state: JobState) -> None:
        known = {each.iteration for each in state.evaluations}
        unknown = [each for each in self.evaluations[-KEPT_EVALUATIONS:] if each.iteration not in known]
        if unknown and (self._recording is None or self._recording.done()):
            self._recording = asyncio.create_task(self._record(unknown), name="record")

    async def _record(self, evaluations: Sequence[Evaluation]) -> None:
        """Records evaluations with the dispatcher. A refusal ends nothing: training and evaluations continue."""
        try:
            # Without a report: `drive` calls the same dispatcher, and reports that it is away.
            await repeated(
                lambda: self._client.record_evaluations(self._job.name, evaluations), PATIENCE_SECONDS, on=AWAY
            )
        except EsdError as error:
            if str(error) != self._not_recorded:
                self._not_recorded = str(error)
                self._listener(EvaluationsNotKept(str(error)))

    async def _evaluate(self, checkpoint: int) -> None:
        try:
            labels, ranking = await Patience(self._listener).until_done(lambda: self._evaluator.evaluate(checkpoint))
        except (FailedPrecondition, NotFound) as error:
            self._listener(EvaluationMissed(checkpoint, str(error)))
        else:
            self._add(checkpoint, labels, ranking)
            # Before the stream goes on: so the next checkpoint but one has it, and a driver that is started again there
            # finds the two before it, which it can evaluate.
            await self._record(self.evaluations[-1:])
            if self._evaluated is not None:
                await self._evaluated(self.evaluations[-1])
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
            self._listener(StoppingEarly(early_stop.metric, best, at))

    def _add(self, iteration: int, labels: tuple[Quality, ...], ranking: Ranking | None) -> None:
        evaluation = Evaluation(iteration, labels, self._name, ranking)
        self.evaluations.append(evaluation)
        self._listener(Evaluated(evaluation, self._job.labels))

    def _allowed(self) -> int:
        """How many samples of the stream may be submitted now."""
        if not self._every:
            return sys.maxsize
        # A checkpoint is taken when the batch behind it is there, with all that a decision looks at.
        ahead = self._done - self._job.first_iteration + 2 * self._every + self._job.options.horizon
        return ahead * self._job.batch_size

    def _miss(self, due: int) -> None:
        """Gives an evaluation up whose checkpoint does not come, as when a disk is full."""
        now = time.monotonic()
        if self._missing_since is None:
            self._missing_since = now
        elif now - self._missing_since > _MISSING_SECONDS:
            self._listener(EvaluationMissed(due, "there is no checkpoint"))
            self._done, self._missing_since = due, None
            self._changed.set()

    def _raise_if_failed(self) -> None:
        if self._running is not None and self._running.done():
            self._running.result()


@asynccontextmanager
async def watched(
    chosen: RunOptions,
    job: JobSpec,
    samples: Iterable[SampleBatch] | None,
    client: AsyncDispatcherClient,
    credentials: Credentials = PLAINTEXT,
    listener: Listener = ignore,
    name: str = "",
    evaluated: Callable[[Evaluation], Awaitable[None]] | None = None,
) -> AsyncIterator[HeldOut | None]:
    """Makes the evaluations of a job that these options ask for, on these samples; None if there are none.

    The name of the samples is compared with the name of an earlier driver's samples, unless it is empty. `evaluated` is
    as of HeldOut.

    Raises:
        NotFound, InvalidArgument: the model cannot be scored here.
    """
    if samples is None:
        yield None
        return
    early_stop = None if chosen.early_stop is None else EarlyStop.parse(chosen.early_stop)
    evaluator = Evaluator(job, samples, credentials, listener)
    held_out = HeldOut(
        job,
        evaluator,
        client,
        every=chosen.evaluate_every,
        early_stop=early_stop,
        listener=listener,
        name=name,
        evaluated=evaluated,
    )
    try:
        await evaluator.prepare()
        yield held_out
    finally:
        await held_out.aclose()
