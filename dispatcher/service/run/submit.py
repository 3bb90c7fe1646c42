"""How samples come in: what a client submits is checked, logged, acknowledged, and put in the queue for the planner."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from esd.dispatcher.service.checkpoint.checkpoints import Checkpoints
from esd.dispatcher.service.state.lifecycle import Lifecycle
from esd.dispatcher.service.state.samples import SampleQueue
from esd.protos import common_pb2
from esd.services.domain.batches import LogEntry, SampleBatch
from esd.services.domain.errors import EsdError, FailedPrecondition, StaleEpoch, Unavailable
from esd.services.domain.jobs import JobSpec
from esd.services.wire.batches import decode_batch, encode_batch


class Submission:
    """Takes the samples of one job in, in the one order that the model is made of.

    With checkpoints, samples are in the log of the first parameter server before they are acknowledged, and stay there
    until a checkpoint covers them. The next dispatcher goes on with what is in the log.

    Args:
        job: the job to which the samples belong.
        lifecycle: the lifecycle of the job.
        samples: takes the samples until they are planned.
        checkpoints: the checkpoints of the job; None logs nothing.

    Attributes:
        durable: whether acknowledged samples outlive the dispatcher and the parameter server.
    """

    def __init__(
        self, job: JobSpec, lifecycle: Lifecycle, samples: SampleQueue, checkpoints: Checkpoints | None
    ) -> None:
        self.durable = checkpoints is not None and checkpoints.durable
        self._job = job
        self._lifecycle = lifecycle
        self._samples = samples
        self._checkpoints = checkpoints
        self._submitting = False
        self._last_seen = time.monotonic()
        self._logging: asyncio.Task[None] | None = None

    def resume(self, logged: Sequence[SampleBatch], *, closed: bool) -> None:
        """Puts what an earlier dispatcher has logged in the queue; `closed` when the stream ends behind it."""
        for batch in logged:
            self._samples.put(batch)
        if closed:
            self._samples.close()

    @contextmanager
    def submitter(self) -> Iterator[None]:
        """Holds the stream for one caller, since the order of the samples is part of the result.

        Raises:
            FailedPrecondition: another caller holds it; the job failed.
        """
        self._lifecycle.raise_if_failed()
        if self._submitting:
            raise FailedPrecondition(f"another Submit call feeds job {self._job.name}, whose samples have one order")
        self._submitting = True
        try:
            yield
        finally:
            self._submitting = False
            self.seen()

    def seen(self) -> None:
        """Notes a sign of life of the driver, such as that it asks for the job's state."""
        self._last_seen = time.monotonic()

    @property
    def silence(self) -> float:
        """The seconds since the last sign of life of whoever has to end the stream; 0 if nobody has to."""
        return 0.0 if self._submitting or self._samples.closed else time.monotonic() - self._last_seen

    async def taken(self) -> int:
        """Returns how many samples were taken in so far, which is where a client goes on."""
        if self._logging is not None and not self._logging.done():  # a call that was cut off has left it behind
            await asyncio.wait([self._logging])
        return self._samples.taken

    async def take_in(self, message: common_pb2.SampleBatch, position: int | None = None) -> None:
        """Takes samples in as soon as there is room; returns when they are logged. Those that came before are ignored.

        Args:
            message: any number of samples, as they came.
            position: how many samples of the stream come before the batch; None: as many as were taken in.

        Raises:
            InvalidArgument: the batch is malformed, has other features or labels than the job, or a label that the
                job's loss does not take. None of it is taken in.
            FailedPrecondition: samples are missing before it, or the stream has ended; the job failed.
        """
        batch = decode_batch(message)
        batch.check_shape(self._job.features, self._job.dense_features, len(self._job.labels))
        taken = await self.taken()
        if position is None:
            position = taken
        if position > taken:
            raise FailedPrecondition(
                f"the batch begins at sample {position}, job {self._job.name} has taken in {taken}: go on from there"
            )
        known = taken - position
        if known >= len(batch):
            return
        self._job.model.loss.check_labels(batch.labels, self._job.labels, position)
        if self._samples.closed:
            raise FailedPrecondition(f"the sample stream of job {self._job.name} has ended after {taken} samples")
        if known:
            batch = batch[known:]
            message = encode_batch(batch)
        await self._lifecycle.wait_until(lambda: self._samples.has_room(len(batch)))
        await self._log_and_put(batch, message)

    async def end(self) -> None:
        """Ends the stream: what is left makes the last batch. It may be repeated."""
        await self.taken()
        if not self._samples.closed:
            await self._log_and_put(None, None)

    async def close(self) -> None:
        """Gives up what is not acknowledged."""
        if self._logging is not None:
            self._logging.cancel()
            await asyncio.gather(self._logging, return_exceptions=True)

    async def _log_and_put(self, batch: SampleBatch | None, message: common_pb2.SampleBatch | None) -> None:
        """Logs samples, if the job takes checkpoints, and puts them in the queue; None is the end of the stream.

        Once begun it is done, even if the call that has brought the samples is cut off meanwhile.
        """
        if self._checkpoints is None:
            self._put(batch)
            return
        logs = self._log_then_put(batch, message, self._checkpoints)
        self._logging = logging = asyncio.create_task(logs, name="log_samples")
        await asyncio.wait([logging])
        if logging.cancelled():  # by `close`: gRPC would answer nothing to a call whose handler is cancelled
            self._lifecycle.raise_if_failed()
            raise Unavailable(f"job {self._job.name} ends, and the samples were not taken in")
        logging.result()

    async def _log_then_put(
        self, batch: SampleBatch | None, message: common_pb2.SampleBatch | None, checkpoints: Checkpoints
    ) -> None:
        entry = LogEntry(self._samples.taken, 0)
        if batch is not None and message is not None:
            entry = LogEntry(self._samples.taken, len(batch), message.SerializeToString())
        await self._log(entry, checkpoints)
        self._put(batch)

    def _put(self, batch: SampleBatch | None) -> None:
        if batch is None:
            self._samples.close()
        else:
            self._samples.put(batch)
        self._lifecycle.notify(workers=False)

    async def _log(self, entry: LogEntry, checkpoints: Checkpoints) -> None:
        try:
            while True:
                try:
                    return await checkpoints.store.append_samples(entry, lambda: checkpoints.epoch)
                except StaleEpoch:  # the server was started again, and workers may be waited for longer than servers
                    if not self._lifecycle.between_epochs:
                        raise
        except EsdError as error:  # nobody knows whether they are in it, so there is no going on
            self._lifecycle.fail(
                f"the sample log cannot be written: {error}; the last checkpoint is {checkpoints.latest.iteration}"
            )
            raise
