"""The intake of samples: a client's batches are checked, logged, acknowledged, and queued for the planner."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from esd.dispatcher.service.checkpoint.checkpoints import Checkpoints
from esd.dispatcher.service.state.lifecycle import Lifecycle
from esd.dispatcher.service.state.samples import SampleQueue
from esd.protos import common_pb2
from esd.services.domain.batches import LogEntry, SampleBatch
from esd.services.domain.errors import EsdError, FailedPrecondition, StaleEpoch, Unavailable
from esd.services.domain.job_samples import check_contents, check_form
from esd.services.domain.jobs import JobSpec
from esd.services.domain.sources import Taken
from esd.services.wire.batches import decode_batch, encode_batch


class Submission:
    """Accepts the samples of one job, in one order, since the model depends on it.

    With checkpoints, samples are in the log of the first parameter server before they are acknowledged, and stay there
    until a checkpoint covers them. A restarted dispatcher continues with the samples in the log.

    Args:
        job: the job to which the samples belong.
        lifecycle: the lifecycle of the job.
        samples: the queue for samples that are not planned yet.
        checkpoints: the checkpoints of the job; None logs nothing.
        end_epoch: ends the present epoch with a cause, so that the job recovers.

    Attributes:
        durable: whether acknowledged samples outlive the dispatcher and the parameter server.
    """

    def __init__(
        self,
        job: JobSpec,
        lifecycle: Lifecycle,
        samples: SampleQueue,
        checkpoints: Checkpoints | None,
        end_epoch: Callable[[str], None],
    ) -> None:
        self.durable = checkpoints is not None and checkpoints.durable
        self._job = job
        self._lifecycle = lifecycle
        self._samples = samples
        self._checkpoints = checkpoints
        self._end_epoch = end_epoch
        self._submitting = False
        self._last_seen = time.monotonic()
        self._logging: asyncio.Task[None] | None = None

    def resume(self, logged: Sequence[SampleBatch], *, closed: bool) -> None:
        """Queues the samples that an earlier dispatcher logged; `closed` if the stream ends after them."""
        for batch in logged:
            self._samples.put(batch)
        if closed:
            self._samples.close()

    @contextmanager
    def submitter(self) -> Iterator[None]:
        """Reserves the stream for one caller, since interleaved batches of two callers would have no defined order.

        Raises:
            FailedPrecondition: another caller holds the stream, or the job failed.
            Unavailable: the dispatcher is stopping.
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
        """Records a call of the driver, such as a request for the job's state."""
        self._last_seen = time.monotonic()

    @property
    def silence(self) -> float:
        """The seconds since the driver's last call; 0 during a Submit call and after the end of the stream."""
        return 0.0 if self._submitting or self._samples.closed else time.monotonic() - self._last_seen

    async def taken(self) -> Taken:
        """Returns the number of samples accepted so far, at which a client continues, and their end in its source."""
        if self._logging is not None and not self._logging.done():  # an earlier call was cut off while it logged
            await asyncio.wait([self._logging])
        return self._samples.taken

    async def take_in(self, message: common_pb2.SampleBatch, position: int | None = None) -> None:
        """Accepts samples as soon as there is room, and returns when they are logged. Known samples are ignored.

        Args:
            message: any number of samples, as received.
            position: the number of samples of the stream before the batch; None: the number accepted so far.

        Raises:
            InvalidArgument: the batch is malformed, its features or labels differ from the job's, the job's loss
                does not accept a label, or a sample is of a site without workers. No sample of the batch is accepted.
            FailedPrecondition: samples before the batch are missing, or the stream has ended, or the job failed.
            Unavailable: the dispatcher is stopping, or the parameter server with the sample log is away for too long.
            StorageUnwritable: the disk of the sample log has been full or read-only for too long.
            StaleEpoch: another dispatcher has taken the job over.
        """
        batch = decode_batch(message)
        check_form(batch, self._job)
        taken = await self.taken()
        if position is None:
            position = taken
        if position > taken:
            raise FailedPrecondition(
                f"the batch begins at sample {position}, job {self._job.name} has accepted {taken}: continue from there"
            )
        known = taken - position
        if known >= len(batch):
            return
        check_contents(batch, self._job, position)
        if self._samples.closed:
            raise FailedPrecondition(f"the sample stream of job {self._job.name} has ended after {taken} samples")
        if known:
            batch = batch[known:]
            message = encode_batch(batch)
        await self._lifecycle.wait_until(lambda: self._samples.has_room(batch))
        await self._log_and_put(batch, message)

    async def end(self) -> None:
        """Ends the stream: the samples left over make the last, perhaps short, global batch. It may be repeated."""
        await self.taken()
        if not self._samples.closed:
            await self._log_and_put(None, None)

    async def close(self) -> None:
        """Cancels the logging of samples that are not acknowledged."""
        if self._logging is not None:
            self._logging.cancel()
            await asyncio.gather(self._logging, return_exceptions=True)

    async def _log_and_put(self, batch: SampleBatch | None, message: common_pb2.SampleBatch | None) -> None:
        """Logs samples, if the job takes checkpoints, and queues them; None is the end of the stream.

        A task of its own does it, so that it completes even if the Submit call is cut off meanwhile: samples in the log
        that are not in the queue would be trained only after a restart.
        """
        if self._checkpoints is None:
            self._put(batch)
            return
        logs = self._log_then_put(batch, message, self._checkpoints)
        self._logging = logging = asyncio.create_task(logs, name="log_samples")
        await asyncio.wait([logging])
        if logging.cancelled():  # by `close`: gRPC would answer nothing to a call whose handler is cancelled
            self._lifecycle.raise_if_failed()
            raise Unavailable(f"job {self._job.name} ends, and the samples were not accepted")
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
                epoch = checkpoints.epoch
                try:
                    return await checkpoints.store.append_samples(entry, epoch)
                except StaleEpoch as error:
                    await self._wait_for_next_epoch(epoch, checkpoints, error)
        except EsdError as error:  # whether the log holds the samples is unknown, so the job cannot continue
            self._lifecycle.fail(
                f"the sample log cannot be written: {error}; the last checkpoint is {checkpoints.latest.iteration}"
            )
            raise

    async def _wait_for_next_epoch(self, epoch: int, checkpoints: Checkpoints, error: StaleEpoch) -> None:
        """Waits for the epoch that replaces `epoch`, which the server of the sample log has refused.

        The refusal is often the first sign of a server that has restarted: while the stream pauses, no worker calls the
        servers, so no worker could report it. Therefore the refusal itself ends the epoch, and the recovery begins.
        """
        if checkpoints.epoch != epoch:
            return
        if not self._lifecycle.between_epochs:
            self._end_epoch(f"the parameter server with the sample log is in another epoch: {error}")
        await self._lifecycle.wait_until(
            lambda: checkpoints.epoch != epoch or not self._lifecycle.between_epochs,
        )
