"""The checkpoints of one job: taken within the stream, committed in the background, restored after a loss."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from esd.dispatcher.core.checkpoint_schedule import CheckpointSchedule
from esd.dispatcher.core.learned import Arrays, Snapshot, counts_alone, decode_learned, encode_learned
from esd.dispatcher.service.checkpoint.servers import CheckpointStore
from esd.dispatcher.service.state.manifest import DENSE, Manifest, SavedWorker, checksum, describe_job
from esd.dispatcher.service.state.worker_record import WorkerRecord
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import EsdError, FailedPrecondition, StaleEpoch, StorageUnwritable
from esd.services.domain.jobs import JobSpec
from esd.services.domain.reports import FlushReport
from esd.services.domain.state import Evaluation
from esd.services.domain.stream_parts import StreamPlace
from esd.services.runtime.memory import return_freed_memory

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class PendingCheckpoint:
    """A planned checkpoint that is not committed yet.

    Attributes:
        iteration: the iteration that follows the checkpoint.
        place: the place of the stream before the next sample.
        planned: the totals of the plans before it; see `JobTotals.save_planned`.
        planner: the snapshot of the planner's state.
        workers: the workers that have flushed, by slot.
        dense_checksum: SHA-256 of the dense parameters, from the worker that has stored them.
        progress: loss and AUC of the iterations before it; set once all workers have flushed.
        feedback: measurements before it that decisions after it will use; set once all workers have flushed.
        evaluations: the evaluations on held-out samples recorded until all workers had flushed.
        failure: why a worker could not store its part; empty while the checkpoint can be committed.
        finished: whether the stream ends here.
    """

    iteration: int
    place: StreamPlace
    planned: dict[str, float]
    planner: Snapshot
    workers: dict[int, SavedWorker] = field(default_factory=dict)
    dense_checksum: str = ""
    progress: bytes = b""
    feedback: bytes = b""
    evaluations: tuple[Evaluation, ...] = ()
    failure: str = ""
    finished: bool = False


@dataclass(frozen=True, slots=True)
class RestoredCheckpoint:
    """A checkpoint that all parameter servers have restored.

    Attributes:
        manifest: the manifest of the checkpoint.
        epoch: the number of the epoch that the servers have begun there.
        planner: the snapshot of the planner's state; None at iteration 0.
        progress: loss and AUC of the iterations before it; None when this job has trained nothing.
        feedback: measurements that no decision had used; empty when this job has trained nothing.
    """

    manifest: Manifest
    epoch: int
    planner: Snapshot | None
    progress: bytes | None
    feedback: bytes = b""


class Checkpoints:
    """The latest checkpoint of a job, and the next one in the making.

    Args:
        job: the specification of the job, with the interval between checkpoints.
        store: the parameter servers.
        latest: the manifest of the committed checkpoint.
        epoch: the present epoch number.
        durable: whether checkpoints and logged samples outlive the parameter server.

    Attributes:
        job: as above, with the way to sum dense gradients once it is chosen.
        store: the parameter servers, which keep the checkpoints and the sample log.
        latest: the manifest of the latest committed checkpoint.
        epoch: the highest epoch number that any server has seen.
        durable: whether checkpoints and logged samples outlive the parameter server.
        failures: the errors of the commits that failed since the last success, each with its time on the monotonic
            clock.
    """

    def __init__(self, job: JobSpec, store: CheckpointStore, latest: Manifest, epoch: int, *, durable: bool) -> None:
        self.job = job
        self.store = store
        self.latest = latest
        self.epoch = epoch
        self.durable = durable
        self.failures: list[tuple[float, Exception]] = []
        self._schedule = CheckpointSchedule(
            job.checkpoint_every, job.checkpoint_seconds, job.checkpoint_bytes, first=job.first_iteration
        )
        # The committed checkpoint, and later ones whose commit failed here: the server may have committed those all the
        # same, if only its answer was lost.
        self._made = [latest]
        self._pending: PendingCheckpoint | None = None
        self._commit: asyncio.Task[None] | None = None

    @property
    def idle(self) -> bool:
        """Whether no checkpoint is pending."""
        return self._pending is None

    def due(self, iteration: int) -> bool:
        """Returns whether a checkpoint must be taken before this iteration."""
        return self._schedule.due(iteration, time.monotonic())

    def planned(self, samples: SampleBatch) -> None:
        """Counts the samples of an iteration among those that the next checkpoint covers."""
        self._schedule.add(samples.nbytes)

    def seconds_left(self, iteration: int) -> float:
        """Returns the seconds until a checkpoint before this iteration is due by time; infinite if it never is."""
        return self._schedule.seconds_left(iteration, time.monotonic())

    def begin_epoch(self, iteration: int) -> None:
        """Restarts the schedule at the first iteration of an epoch."""
        self._schedule.start(iteration, time.monotonic())

    def begin(self, pending: PendingCheckpoint) -> None:
        """Makes a checkpoint pending, whose flush plans the caller is about to publish."""
        self._schedule.start(pending.iteration, time.monotonic())
        self._pending = pending

    def flushed(self, report: FlushReport, worker: WorkerRecord, workers: int) -> bool:
        """Records a worker's flush for the pending checkpoint. Returns whether all `workers` have flushed now."""
        pending = self._pending
        if pending is None or pending.iteration != report.iteration:
            return False
        pending.dense_checksum = pending.dense_checksum or report.dense_checksum
        pending.failure = pending.failure or report.failure
        pending.workers[worker.slot] = worker.saved
        return len(pending.workers) == workers

    def commit(
        self,
        epoch: int,
        progress: bytes,
        feedback: bytes,
        evaluations: tuple[Evaluation, ...],
        on_done: Callable[[str], None],
    ) -> None:
        """Starts to commit the pending checkpoint, for which all workers have flushed.

        Args:
            epoch: the number of the present epoch.
            progress: loss and AUC of the iterations before the checkpoint.
            feedback: measurements before the checkpoint that decisions after it will use.
            evaluations: the evaluations on held-out samples so far.
            on_done: called in the end, whether the commit succeeded or failed, with the reason why the epoch must end:
                a server is in another epoch; empty if the epoch continues.
        """
        assert self._pending is not None  # noqa: S101 - all workers have just flushed for it
        self._pending.progress = progress
        self._pending.feedback = feedback
        self._pending.evaluations = evaluations
        self._commit = asyncio.create_task(
            self._commit_in_background(self._pending, epoch, on_done), name="commit_checkpoint"
        )

    async def commit_end(self, pending: PendingCheckpoint, epoch: int) -> None:
        """Commits the last checkpoint of the job, at the end of its stream.

        Raises:
            EsdError: the checkpoint could not be committed.
        """
        await self.store.with_room(lambda: self._write(pending, epoch))
        await self._trim_samples(epoch)

    async def finish_latest(self, evaluations: tuple[Evaluation, ...], epoch: int) -> None:
        """Marks the latest checkpoint as the job's last checkpoint, whose stream ended right after it.

        Args:
            evaluations: the evaluations on held-out samples so far.
            epoch: the number of the present epoch.

        Raises:
            EsdError: the changed manifest could not be committed.
        """
        manifest = replace(self.latest, evaluations=evaluations, finished=True)
        kept = self.job.checkpoints_kept
        await self.store.with_room(
            lambda: self.store.commit(manifest.iteration, epoch, manifest.encode(), kept, finished=True)
        )
        self.latest = manifest
        await self._trim_samples(epoch)

    async def complete_end(self) -> None:
        """Commits the last checkpoint of a finished job on the shards that an earlier dispatcher did not reach.

        Raises:
            FailedPrecondition: a shard cannot restore the checkpoint.
            Unavailable: a parameter server is away for too long.
        """
        stored = await self.store.committed()
        if stored.finished:
            return
        self.epoch = max(self.epoch, stored.epoch) + 1
        await self.store.restore(self.latest.iteration, self.epoch)
        await self.store.commit(
            self.latest.iteration, self.epoch, stored.manifest, self.job.checkpoints_kept, finished=True
        )

    async def abandon(self) -> None:
        """Cancels the pending checkpoint, because its epoch is over."""
        if self._commit is not None:
            self._commit.cancel()
            with suppress(asyncio.CancelledError):
                await self._commit
        self._commit = self._pending = None

    async def restore(self) -> RestoredCheckpoint:
        """Restores the committed checkpoint on all parameter servers, and begins a new epoch there.

        Raises:
            FailedPrecondition: the checkpoint is damaged, or gone, or another dispatcher made it, or a server cannot
                restore it.
            Unavailable: a parameter server is away for too long.
        """
        stored = await self.store.committed()
        found = Manifest.decode(stored.manifest)
        self._check_made_here(found)
        self.latest = found
        self.epoch = max(self.epoch, stored.epoch) + 1
        await self.store.with_room(lambda: self.store.restore(self.latest.iteration, self.epoch))
        if not self.latest.iteration:
            return RestoredCheckpoint(self.latest, self.epoch, None, None)
        engine = await self.read_part("engine")
        if self.latest.iteration == self.job.first_iteration:  # an earlier job's figures do not count here
            counts = counts_alone(await self._read_learned()) if self.job.admit_afters else {}
            return RestoredCheckpoint(self.latest, self.epoch, Snapshot(engine, counts), None)
        progress = await self.read_part("progress")
        if not self.latest.has_part("learned"):
            return RestoredCheckpoint(self.latest, self.epoch, Snapshot(engine), progress)
        learned, feedback = await self._read_learned(), await self.read_part("feedback")
        return RestoredCheckpoint(self.latest, self.epoch, Snapshot(engine, learned), progress, feedback)

    def _check_made_here(self, found: Manifest) -> None:
        """Refuses a checkpoint that this dispatcher did not make: the samples kept here would not follow it.

        Raises:
            FailedPrecondition: the checkpoint is another dispatcher's, or an operator has restored an older one.
        """
        if not any((found.iteration, found.time) == (made.iteration, made.time) for made in self._made):
            raise FailedPrecondition(
                f"table {self.job.table.name!r} holds checkpoint {found.iteration}, which this dispatcher has not "
                f"made (its last one is {self.latest.iteration}): another dispatcher has taken the job over, or "
                "`esd checkpoint` has restored another checkpoint; repeat the job, which resumes from that checkpoint"
            )

    async def read_part(self, name: str) -> bytes:
        """Reads a part of the latest checkpoint.

        Raises:
            FailedPrecondition: the part is damaged.
            Unavailable: the first parameter server is away for too long.
        """
        part = await self.store.get_part(self.latest.iteration, name)
        await asyncio.to_thread(self.latest.check_part, name, part)
        return part

    async def _read_learned(self) -> Arrays:
        return await asyncio.to_thread(decode_learned, await self.read_part("learned"))

    async def close(self) -> None:
        """Waits for a running commit, or cancels it if this call is cancelled, and closes the connections."""
        if self._commit is not None:
            with suppress(asyncio.CancelledError):
                await self._commit
        await self.store.close()

    async def _commit_in_background(
        self, pending: PendingCheckpoint, epoch: int, on_done: Callable[[str], None]
    ) -> None:
        over = ""
        try:
            if pending.failure:
                raise StorageUnwritable(pending.failure)
            await self._write(pending, epoch)
        except StaleEpoch as error:
            over = f"checkpoint {pending.iteration} could not be committed: {error}"
        except EsdError as error:
            # Training continues; until the next checkpoint a recovery would repeat more iterations.
            self.failures.append((time.monotonic(), error))
            _log.warning("checkpoint %d could not be committed: %s", pending.iteration, error)
        except Exception as error:  # noqa: BLE001 - a defect, after which the planner must not wait for ever
            self.failures.append((time.monotonic(), error))
            _log.exception("defect while checkpoint %d was committed", pending.iteration)
        else:
            self.failures.clear()
            await self._trim_samples(epoch)
        self._pending = None
        on_done(over)
        await asyncio.to_thread(return_freed_memory)  # of the samples that the checkpoint covers

    async def _trim_samples(self, epoch: int) -> None:
        """Drops the samples that the latest checkpoint covers from the log. After a failure the next commit does it."""
        try:
            await self.store.trim_samples(self.latest.samples, epoch)
        except EsdError as error:
            _log.warning("the sample log could not be trimmed: %s", error)

    async def _write(self, pending: PendingCheckpoint, epoch: int) -> None:
        await asyncio.to_thread(return_freed_memory)  # of the flush plans, which are as long as the caches
        parts = {
            "engine": pending.planner.engine,
            "learned": await asyncio.to_thread(encode_learned, pending.planner.learned),
            "progress": pending.progress,
            "feedback": pending.feedback,
        }
        known = dict(enumerate(self.latest.workers_of(self.job.workers)))
        workers = known | pending.workers  # an absent worker keeps its slot and its totals
        for name, data in parts.items():
            await self.store.put_part(pending.iteration, name, data, epoch)
        checksums = await asyncio.to_thread(lambda: {name: checksum(data) for name, data in parts.items()})
        changed = size = 0
        if pending.iteration:
            changed, size = await self.store.save(pending.iteration, epoch)
        manifest = Manifest(
            job=describe_job(self.job),
            iteration=pending.iteration,
            samples=pending.place.samples,
            place=pending.place,
            workers=tuple(workers[slot] for slot in sorted(workers)),
            planned=pending.planned,
            checksums=checksums | {DENSE: pending.dense_checksum},
            finished=pending.finished,
            time=time.time(),
            changed=changed,
            size=size + sum(map(len, parts.values())),
            evaluations=pending.evaluations,
            cuts=(*(cut for cut in self.latest.cuts if cut < pending.iteration), pending.iteration),
        )
        self._made.append(manifest)  # before the call, whose effect is unknown if it fails
        await self.store.commit(
            pending.iteration, epoch, manifest.encode(), self.job.checkpoints_kept, finished=pending.finished
        )
        self.latest = manifest
        self._made = [manifest]
        _log.info("checkpoint %d is committed", pending.iteration)
