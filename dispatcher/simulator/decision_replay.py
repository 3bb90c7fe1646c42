"""The replay of a recorded run: it makes the same plans again."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from esd.dispatcher.core.decision_log import (
    CheckpointPlanned,
    EpochBegan,
    IterationPlanned,
    JobOpened,
    Observed,
    Record,
    StreamEnded,
)
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
    """Plans a recorded run again and returns its totals; an iteration that was trained twice counts once.

    Args:
        records: reads the records of the decision log, including the job. It is called twice: the first pass finds the
            checkpoints at which epochs begin, since the second pass keeps snapshots of these only.
        job: the job of the log's first record.
        batches: reads the run's global batches, from the start.
        digest: hashes the messages of one iteration's plans, with the log's method.

    Raises:
        FailedPrecondition: a plan differs from the recorded plan, because the samples differ.
        InvalidArgument: the stream ends before the log does, or an epoch begins at a checkpoint that is not in the log,
            or the run continued another run.
    """
    if job.first_iteration:
        raise InvalidArgument(
            f"the run continues from iteration {job.first_iteration} of another run (--continue-from), and the "
            "decision log does not hold the versions of the rows there: only the other run can be replayed"
        )
    begins = Counter(record.first for record in records() if isinstance(record, EpochBegan))
    return _Replay(job, batches, digest, begins).run(records())


class _Replay:
    """The second pass over the records; `begins` counts the epochs that begin at each checkpoint."""

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
                    planner.observe(record.feedback())
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
                    "replay needs the log of the whole run, and a log file that was moved away has been started anew"
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
            rests=epoch.rests,
        )

    def _keep(self, iteration: int, snapshot: Snapshot) -> None:
        if self._begins[iteration]:
            self._checkpoints[iteration] = snapshot, copy.deepcopy(self._tally)

    def _drop_unneeded(self, begun: int) -> None:
        """Counts an epoch that has begun at a checkpoint, and drops the checkpoint if no later epoch begins there."""
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
                f"the plans of iteration {record.iteration} differ from the decision log: the samples are different"
            )
        self._tally.add(decision, decision.link_seconds)
