"""Checkpoints of one job: taken within the stream, committed in the background while training goes on."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from dispatcher.core.checkpoint_schedule import CheckpointSchedule
from dispatcher.service.checkpoint.servers import CheckpointStore
from dispatcher.service.state.epoch import Epoch
from dispatcher.service.state.manifest import DENSE, Manifest, SavedWorker, checksum, describe_job
from dispatcher.service.state.workers import Member
from services.domain.errors import EsdError
from services.domain.jobs import JobSpec
from services.domain.reports import FlushReport

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Pending:
    """A cut that is on its way.

    Attributes:
        iteration: that follows it.
        samples: of the stream, before it.
        planned: totals of the plans before it.
        engine: snapshot of the planner's state.
        workers: who has flushed, by slot.
        dense_checksum: SHA-256 of the dense parameters, from the worker that has stored them.
        progress: loss and AUC of the iterations before it, once all have flushed.
        finished: whether the stream ends here.
    """

    iteration: int
    samples: int
    planned: dict[str, float]
    engine: bytes
    workers: dict[int, SavedWorker] = field(default_factory=dict)
    dense_checksum: str = ""
    progress: bytes = b""
    finished: bool = False


class Checkpoints:
    """The latest checkpoint of a job, and the next one in the making.

    Attributes:
        store: where they are kept.
        latest: the committed one.
        epoch: the highest epoch number that any server has seen.
        durable: whether checkpoints and logged samples outlive the parameter server.
        failures: how many of the latest could not be committed.
    """

    def __init__(self, job: JobSpec, store: CheckpointStore, latest: Manifest, epoch: int, *, durable: bool) -> None:
        """Takes checkpoints as often as the job says."""
        self.store = store
        self.latest = latest
        self.epoch = epoch
        self.durable = durable
        self.failures = 0
        self._job = job
        self._schedule = CheckpointSchedule(job.checkpoint_every, job.checkpoint_seconds)
        self._pending: Pending | None = None
        self._commit: asyncio.Task[None] | None = None

    @property
    def idle(self) -> bool:
        """Whether none is in the making."""
        return self._pending is None

    def begin_epoch(self, iteration: int) -> None:
        """An epoch begins at this iteration."""
        self._schedule.start(iteration, time.monotonic())

    def due(self, iteration: int) -> bool:
        """Whether one is to be taken before this iteration."""
        return self._schedule.due(iteration, time.monotonic())

    def begin(self, pending: Pending) -> None:
        """One is planned; the workers get their flush plans."""
        self._schedule.start(pending.iteration, time.monotonic())
        self._pending = pending

    def flushed(self, report: FlushReport, member: Member, everyone: int) -> bool:
        """Counts a worker that has carried out its flush plan; True when it was the last of `everyone`."""
        pending = self._pending
        if pending is None or pending.iteration != report.iteration:
            return False
        pending.dense_checksum = pending.dense_checksum or report.dense_checksum
        pending.workers[member.slot] = member.saved
        return len(pending.workers) == everyone

    def commit(self, epoch: Epoch, progress: bytes, done: Callable[[Manifest], None]) -> None:
        """Starts committing the pending one, whose flush all workers have carried out; `done` is called at its end."""
        assert self._pending is not None  # noqa: S101 - it has just been flushed
        self._pending.progress = progress
        self._commit = asyncio.create_task(
            self._write_in_background(self._pending, epoch, done), name="commit_checkpoint"
        )

    async def abandon(self) -> None:
        """Lets go of one in the making: its epoch is over."""
        if self._commit is not None:
            self._commit.cancel()
            with suppress(asyncio.CancelledError):
                await self._commit
        self._commit = self._pending = None

    async def close(self) -> None:
        """Finishes what is being committed, and closes the connections."""
        if self._commit is not None:
            with suppress(asyncio.CancelledError):
                await self._commit
        await self.store.close()

    async def commit_end(self, pending: Pending, epoch: Epoch) -> None:
        """Commits the last checkpoint of the job, at the end of its stream.

        Raises:
            EsdError: it could not be committed.
        """
        await self._write(pending, epoch)
        await self._trim(epoch)

    async def _write_in_background(self, pending: Pending, epoch: Epoch, done: Callable[[Manifest], None]) -> None:
        try:
            await self._write(pending, epoch)
        except EsdError as error:
            # Training goes on; the way back is longer until the next one.
            self.failures += 1
            _log.warning("checkpoint %d could not be committed: %s", pending.iteration, error)
        else:
            self.failures = 0
            await self._trim(epoch)
        self._pending = None
        done(self.latest)

    async def _trim(self, epoch: Epoch) -> None:
        """Shortens the sample log by what the latest checkpoint covers. If that fails, the next one does it."""
        try:
            await self.store.trim_samples(self.latest.samples, epoch.number)
        except EsdError as error:
            _log.warning("the sample log could not be trimmed: %s", error)

    async def _write(self, pending: Pending, epoch: Epoch) -> None:
        parts = {"engine": pending.engine, "progress": pending.progress}
        known = enumerate(self.latest.crew(self._job.workers))
        absent = {slot: worker for slot, worker in known if slot not in pending.workers}
        workers = pending.workers | absent  # a worker that is away now keeps its slot and its figures
        for name, data in parts.items():
            await self.store.put_part(pending.iteration, name, data)
        changed = size = 0
        if pending.iteration:
            changed, size = await self.store.save(pending.iteration, epoch.number)
        manifest = Manifest(
            job=describe_job(self._job),
            iteration=pending.iteration,
            samples=pending.samples,
            workers=tuple(workers[slot] for slot in sorted(workers)),
            planned=pending.planned,
            checksums={name: checksum(data) for name, data in parts.items()} | {DENSE: pending.dense_checksum},
            finished=pending.finished,
            time=time.time(),
            changed=changed,
            size=size + sum(map(len, parts.values())),
            cuts=(*(cut for cut in self.latest.cuts if cut < pending.iteration), pending.iteration),
        )
        await self.store.commit(pending.iteration, epoch.number, manifest.encode(), self._job.checkpoints_kept)
        self.latest = manifest
        _log.info("checkpoint %d is committed", pending.iteration)
