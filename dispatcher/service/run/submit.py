"""The sample stream of one job: what clients submit is logged, acknowledged, and kept for the planner."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from dispatcher.service.checkpoint.checkpoints import Checkpoints
from dispatcher.service.state import metrics as telemetry
from dispatcher.service.state.phase import Lifecycle
from dispatcher.service.state.samples import Intake
from services.domain.batches import LogEntry, SampleBatch
from services.domain.errors import EsdError, FailedPrecondition, InvalidArgument
from services.domain.jobs import JobSpec
from services.wire.batches import encode_batch


class SampleStream:
    """Takes samples in, in the one order that the model is made of.

    With checkpoints, samples are in the log of the first parameter server before they are acknowledged, and stay there
    until a checkpoint covers them. The next dispatcher takes them up from there.

    Args:
        job: whose samples these are.
        life: of the job.
        intake: what waits to be planned.
        checkpoints: of the job; None: nothing is logged.

    Attributes:
        intake: what waits to be planned.
        durable: whether acknowledged samples outlive the dispatcher and the parameter server.
    """

    def __init__(self, job: JobSpec, life: Lifecycle, intake: Intake, checkpoints: Checkpoints | None) -> None:
        self.intake = intake
        self.durable = checkpoints is not None and checkpoints.durable
        self._job = job
        self._life = life
        self._checkpoints = checkpoints
        self._submitting = False
        self._logging: asyncio.Task[None] | None = None

    def take_up(self, logged: Sequence[SampleBatch], *, closed: bool) -> None:
        """Takes in what an earlier dispatcher has logged."""
        for batch in logged:
            self.intake.put(batch)
        if closed:
            self.intake.close()

    @contextmanager
    def submitter(self) -> Iterator[None]:
        """Holds the stream for one caller, since the order of the samples is part of the result.

        Raises:
            FailedPrecondition: another caller holds it; the job failed.
        """
        self._life.check()
        if self._submitting:
            raise FailedPrecondition(f"another Submit call feeds job {self._job.name}, whose samples have one order")
        self._submitting = True
        try:
            yield
        finally:
            self._submitting = False

    async def taken(self) -> int:
        """Samples taken in so far: where a client goes on."""
        if self._logging is not None:  # of a call that was cut off
            await asyncio.wait([self._logging])
        return self.intake.taken

    async def take_in(self, batch: SampleBatch, position: int | None = None) -> None:
        """Takes samples in as soon as there is room; returns when they are logged. Those that came before are ignored.

        Args:
            batch: any number of samples.
            position: samples of the stream before the batch; None: as many as were taken in.

        Raises:
            InvalidArgument: the batch has other fields or dense features than the job.
            FailedPrecondition: samples are missing before it, or the stream has ended; the job failed.
        """
        for name, columns, expected in (
            ("ids", batch.ids.shape[1], self._job.fields),
            ("dense features", batch.dense.shape[1], self._job.dense_features),
        ):
            if columns != expected:
                raise InvalidArgument(f"the batch has {columns} {name} per sample, job {self._job.name} has {expected}")
        taken = await self.taken()
        if position is None:
            position = taken
        if position > taken:
            raise FailedPrecondition(
                f"the batch begins at sample {position}, job {self._job.name} has taken in {taken}: go on from there"
            )
        new = batch[taken - position :]
        if not len(new):
            return
        if self.intake.closed:
            raise FailedPrecondition(f"the sample stream of job {self._job.name} has ended after {taken} samples")
        await self._life.until(lambda: self.intake.has_room(len(new)))
        await self._log(new)

    async def end(self) -> None:
        """No more samples: what is left makes the last batch. May be repeated."""
        await self.taken()
        if not self.intake.closed:
            await self._log(None)

    def next_batch(self) -> SampleBatch:
        """Gives the next global batch to the planner; call it when `intake.ready`."""
        batch = self.intake.take()
        self.changed()
        return batch

    def changed(self) -> None:
        """Tells everyone that more, or less, is waiting."""
        covered = self._checkpoints.latest.samples if self._checkpoints is not None else self.intake.taken
        telemetry.queued(self.intake.pending, self.intake.taken - covered)
        self._life.notify()

    async def close(self) -> None:
        """Gives up what is not acknowledged."""
        if self._logging is not None:
            self._logging.cancel()
            await asyncio.gather(self._logging, return_exceptions=True)

    async def _log(self, batch: SampleBatch | None) -> None:
        """Logs samples, None: the end, and takes them in. Whoever is cut off meanwhile, it is done once begun."""
        self._logging = asyncio.create_task(self._log_and_put(batch), name="log_samples")
        await asyncio.shield(self._logging)

    async def _log_and_put(self, batch: SampleBatch | None) -> None:
        if self._checkpoints is not None:
            position = self.intake.taken
            if batch is None:
                entry = LogEntry(position, 0)
            else:
                entry = LogEntry(position, len(batch), encode_batch(batch).SerializeToString())
            checkpoints = self._checkpoints
            try:
                await checkpoints.store.append_samples(entry, lambda: checkpoints.epoch)
            except EsdError as error:  # nobody knows whether they are in it, so there is no going on
                self._life.fail(
                    f"the sample log cannot be written: {error}; the last checkpoint is {checkpoints.latest.iteration}"
                )
                raise
        if batch is None:
            self.intake.close()
        else:
            self.intake.put(batch)
        self.changed()
