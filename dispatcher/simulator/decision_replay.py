"""Makes the plans of a recorded run again."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from esd.dispatcher.core.decision_log import (
    CheckpointPlanned,
    EpochBegan,
    IterationPlanned,
    JobOpened,
    Observed,
    Record,
    StreamEnded,
)
from esd.dispatcher.core.feedback import Feedback
from esd.dispatcher.core.learned import Snapshot
from esd.dispatcher.core.planner import Planner
from esd.dispatcher.simulator.simulate import with_lookahead
from esd.dispatcher.simulator.totals import Tally, Totals
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import FailedPrecondition, InvalidArgument
from esd.services.domain.jobs import JobSpec
from esd.services.domain.worker_set import WorkerSet

Digest = Callable[[Sequence[bytes]], str]


def replay_decisions(
    records: Callable[[], Iterable[Record]], job: JobSpec, batches: Callable[[], Iterator[SampleBatch]], digest: Digest
) -> Totals:
    """Plans a recorded run again and returns its totals; iterations that were trained twice count once.

    Args:
        records: reads the records of the decision log, the job's included. They are read twice: which checkpoints an
            epoch goes back to, which alone are kept, is known at the end.
        job: the job that they begin with.
        batches: reads the run's global batches, from the start.
        digest: hashes the messages of one iteration's plans as it was done for the log.

    Raises:
        FailedPrecondition: a plan differs from the recorded one: the samples are others.
        InvalidArgument: the stream ends before the log does; the log goes back to a checkpoint that is not in it, or
            begins at one of an earlier run.
    """
    if job.first_iteration:
        raise InvalidArgument(
            f"the run goes on from iteration {job.first_iteration} of another one (--continue-from), and which "
            "versions its rows had there is not in the decision log: only that other one can be replayed"
        )
    begins = Counter(record.first for record in records() if isinstance(record, EpochBegan))
    return _Replay(job, batches, digest, begins).run(records())


class _Replay:
    """One pass over the records; `begins` counts the epochs that begin at each checkpoint."""

    def __init__(
        self, job: JobSpec, batches: Callable[[], Iterator[SampleBatch]], digest: Digest, begins: Counter[int]
    ) -> None:
        self._job = job
        self._begins = begins
        self._batches = batches
        self._digest = digest
        self._tally = Tally(job.workers)
        self._checkpoints: dict[int, tuple[Snapshot, Tally]] = {}

    def run(self, records: Iterable[Record]) -> Totals:
        planner: Planner | None = None
        stream: Iterator[tuple[SampleBatch, list[SampleBatch]]] = iter(())
        for record in records:
            if isinstance(record, EpochBegan):
                planner = self._begin(record)
                stream = with_lookahead(islice(self._batches(), record.first, None), planner.lookahead)
                continue
            if isinstance(record, JobOpened):
                continue
            if planner is None:
                raise InvalidArgument("the decision log has decisions before its first epoch")
            match record:
                case Observed():
                    measured = np.array(record.seconds), np.array(record.bandwidths)
                    planner.observe(Feedback(*measured, record.necessary_seconds))
                case CheckpointPlanned():
                    flushes, snapshot = planner.checkpoint()
                    self._tally.flush(flushes)
                    self._keep(record.iteration, snapshot)
                case IterationPlanned():
                    self._plan(planner, stream, record)
                case StreamEnded():
                    self._tally.flush(planner.flush())
        return self._tally.totals()

    def _begin(self, epoch: EpochBegan) -> Planner:
        snapshot = None
        self._tally = Tally(self._job.workers)
        if epoch.first:
            if epoch.first not in self._checkpoints:
                raise InvalidArgument(
                    f"epoch {epoch.epoch} begins at checkpoint {epoch.first}, which is not in the decision log: a "
                    "replay needs the log of the whole run, and a file that was taken away was begun anew"
                )
            snapshot, tally = self._checkpoints[epoch.first]
            self._tally = copy.deepcopy(tally)
        self._drop_unneeded(epoch.first)
        limits = epoch.workload_limits
        job = replace(
            self._job,
            workloads=tuple(epoch.workloads),
            workload_limits=None if limits is None else (limits[0], limits[1]),
        )
        return Planner(
            job,
            epoch.bandwidths,
            epoch.cache_rows,
            worker_limits=[(least, most) for least, most in epoch.worker_limits],
            members=WorkerSet.of(epoch.members),
            epoch=epoch.epoch,
            snapshot=snapshot,
            warm=epoch.warm,
        )

    def _keep(self, iteration: int, snapshot: Snapshot) -> None:
        if self._begins[iteration]:
            self._checkpoints[iteration] = snapshot, copy.deepcopy(self._tally)

    def _drop_unneeded(self, begun: int) -> None:
        """An epoch has begun here; a checkpoint that no later one goes back to is let go."""
        self._begins[begun] -= 1
        if not self._begins[begun]:
            self._checkpoints.pop(begun, None)

    def _plan(
        self, planner: Planner, stream: Iterator[tuple[SampleBatch, list[SampleBatch]]], record: IterationPlanned
    ) -> None:
        planned = next(stream, None)
        if planned is None:
            raise InvalidArgument(f"the stream ends before iteration {record.iteration}, which the decision log has")
        batch, lookahead_batches = planned
        decision = planner.plan(batch, lookahead_batches, record.efforts)
        if self._digest(decision.messages) != record.digest:
            raise FailedPrecondition(
                f"the plans of iteration {record.iteration} are not those of the decision log: the samples are others"
            )
        self._tally.add(decision, decision.link_seconds)
