"""The intake of samples: clients' batches are checked, merged, logged, acknowledged, and queued for the planner."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from esd.dispatcher.service.checkpoint.checkpoints import Checkpoints
from esd.dispatcher.service.checkpoint.resume import LoggedSamples
from esd.dispatcher.service.state.lifecycle import Lifecycle
from esd.dispatcher.service.state.samples import SampleQueue
from esd.protos import common_pb2
from esd.services.domain.batches import LogEntry, SampleBatch
from esd.services.domain.errors import EsdError, FailedPrecondition, InvalidArgument, StaleEpoch, Unavailable
from esd.services.domain.job_samples import check_contents, check_form
from esd.services.domain.jobs import JobSpec
from esd.services.domain.sources import Taken
from esd.services.domain.stream_parts import MAX_STREAM_NAME, StreamPlace
from esd.services.wire.batches import decode_batch, encode_batch


@dataclass(slots=True)
class PartFeed:
    """The calls that feed one part of the stream.

    Attributes:
        call: the deadline of the Submit call that feeds the part, unset until a later call takes its place; None: there
            is no call.
        instance: of the submitter whose call it is; 0: the submitter has none.
        stream: the name of its samples; empty: the submitter has given none.
        ended: whether a call has ended the part, all samples of which are accepted.
        waiting_bytes: of the samples that wait for their turn, or for room: one message at most.
        seen: when the last call ended, on the monotonic clock.
    """

    call: asyncio.Timeout | None = None
    instance: int = 0
    stream: str = ""
    ended: bool = False
    waiting_bytes: int = 0
    seen: float = field(default_factory=time.monotonic)

    @property
    def fed(self) -> bool:
        """Whether a Submit call feeds the part."""
        return self.call is not None

    def end_call(self) -> None:
        """Ends the call wherever it waits, as a deadline would."""
        if self.call is not None and self.call.when() is None:
            self.call.reschedule(asyncio.get_running_loop().time())


class Submission:
    """Accepts the samples of one job, in one order, since the model depends on it.

    The parts of a stream with several submitters are merged as they are accepted (`StreamPlace`): a batch that comes
    before its turn waits in its call, which reads no further message meanwhile. So one message of each part waits at
    most, and the log has the order of the job.

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
        feeds: of the parts of the stream, in their order.
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
        self.feeds = [PartFeed(ended=part.ended) for part in samples.place.parts]
        self._moved = time.monotonic()  # when the turn came to its part, or samples of it were last accepted
        self._logging: asyncio.Task[None] | None = None

    def resume(self, logged: Sequence[LoggedSamples], *, closed: bool) -> None:
        """Queues the samples that an earlier dispatcher logged; `closed` if the stream ends there."""
        for each in logged:
            self._put(each.batch, each.part, each.stream)
        if closed:
            self._samples.close()

    @asynccontextmanager
    async def submitter(self, part: int | None = None, instance: int = 0, stream: str = "") -> AsyncIterator[int]:
        """Reserves a part of the stream for one call: batches of two calls would have no defined order.

        A later call of the same submitter takes the place of its former one, which ends before: a network that falls
        silent leaves the former call open, and the submitter comes again.

        Args:
            part: the part that the caller names; None: the only one.
            instance: of the submitter; 0: it has none.
            stream: says which samples the part has, as `JobSpec.stream`; empty: the caller answers for it.

        Yields:
            The number of the part.

        Raises:
            InvalidArgument: there is no such part, or there are several and the caller names none; or the name is too
                long.
            FailedPrecondition: a call of another submitter holds the part; or its accepted samples are other ones; or
                the job failed.
            Unavailable: a later call of the submitter takes the place of this one; or the dispatcher is stopping.
        """
        self._lifecycle.raise_if_failed()
        number = self._number_of(part)
        self._check_stream(number, stream)
        feed = self.feeds[number]
        while (former := feed.call) is not None:
            if not instance or instance != feed.instance:
                raise FailedPrecondition(
                    f"another Submit call feeds {self._named(number)}, whose samples have one order"
                )
            feed.end_call()
            await self._lifecycle.wait_until(lambda: feed.call is not former)
        feed.call = call = asyncio.timeout(None)
        feed.instance, feed.stream = instance, stream
        try:
            async with call:
                yield number
        except TimeoutError:
            if not call.expired():
                raise
            raise Unavailable(f"a later call of the same submitter feeds {self._named(number)}") from None
        finally:
            feed.call = None
            feed.seen = time.monotonic()
            self._lifecycle.notify(workers=False)

    def seen(self) -> None:
        """Records a call of the driver, such as a request for the job's state. Of several drivers it may be any."""
        if len(self.feeds) == 1:
            self.feeds[0].seen = time.monotonic()

    @property
    def turn(self) -> int:
        """The number of the part whose turn it is."""
        return self._place.turn

    @property
    def silence(self) -> float:
        """The seconds without a Submit call of the part whose turn it is; 0 after the end of the stream."""
        feed = self.feeds[self.turn]
        return 0.0 if feed.fed or self._samples.closed else time.monotonic() - max(feed.seen, self._moved)

    def awaited(self, part: int) -> float:
        """Returns the seconds for which a part has held the stream up.

        It does so in its turn, without samples here: if no call feeds it, or samples of other parts wait.
        """
        feed = self.feeds[part]
        if self._samples.closed or part != self.turn or feed.waiting_bytes:
            return 0.0
        holds_up = not feed.fed or any(other.waiting_bytes for other in self.feeds)
        return time.monotonic() - self._moved if holds_up else 0.0

    async def taken(self, part: int = 0) -> Taken:
        """Returns the number of accepted samples of a part, where a client continues, and their end in its source."""
        if self._logging is not None and not self._logging.done():  # an earlier call was cut off while it logged
            await asyncio.wait([self._logging])
        return self._samples.place.parts[part].taken

    async def take_in(self, message: common_pb2.SampleBatch, position: int | None = None, part: int = 0) -> None:
        """Accepts samples in their turn, as soon as there is room, and returns when they are logged.

        Known samples are ignored. If the call is cut off, the first samples of the batch may be accepted.

        Args:
            message: any number of samples, as received.
            position: the number of samples of the part before the batch; None: the number accepted so far.
            part: of the stream, to which the samples belong.

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
        taken = await self.taken(part)
        if position is None:
            position = taken
        if position > taken:
            raise FailedPrecondition(
                f"the batch begins at sample {position}, {self._named(part)} has accepted {taken}: continue from there"
            )
        known = taken - position
        if known >= len(batch):
            return
        check_contents(batch, self._job, position)
        feed = self.feeds[part]
        if self._samples.closed or feed.ended:
            raise FailedPrecondition(f"the sample stream of {self._named(part)} has ended after {taken} samples")
        try:
            await self._merge(batch[known:] if known else batch, None if known else message, part)
        finally:
            feed.waiting_bytes = 0

    async def end(self, part: int = 0) -> None:
        """Ends a part, and with the last one the stream: the samples left over make the last global batch.

        It may be repeated. It returns when the end is durable: with the next samples of another part, which come in
        its place, or with the end of the stream.
        """
        await self.taken(part)
        turn = self.turn
        self.feeds[part].ended = True
        if not self._samples.closed and all(feed.ended for feed in self.feeds):
            await self._log_and_put(None)
            return
        if self.turn != turn:
            self._moved = time.monotonic()
        self._lifecycle.notify(workers=False)
        await self._lifecycle.wait_until(lambda: self._samples.closed or self._samples.place.parts[part].ended)

    async def close(self) -> None:
        """Cancels the logging of samples that are not acknowledged."""
        if self._logging is not None:
            self._logging.cancel()
            await asyncio.gather(self._logging, return_exceptions=True)

    @property
    def _place(self) -> StreamPlace:
        """The place of the next samples, with the turn of a part that has not ended as far as it is known here."""
        ended = [number for number, feed in enumerate(self.feeds) if feed.ended]
        place = self._samples.place
        return place if len(ended) == len(self.feeds) else place.past(ended)

    async def _merge(self, batch: SampleBatch, message: common_pb2.SampleBatch | None, part: int) -> None:
        """Logs and queues a batch of a part, turn by turn.

        Args:
            batch: the samples.
            message: the batch as it was received, which is logged unless a turn ends within it; None: it was cut.
            part: of the stream.
        """
        feed = self.feeds[part]
        while len(batch):
            feed.waiting_bytes = batch.nbytes
            given = await self._in_its_turn(batch, part)
            if len(given) < len(batch):
                message = None
            await self._log_and_put(given, message, part)
            batch = batch[len(given) :]

    async def _in_its_turn(self, batch: SampleBatch, part: int) -> SampleBatch:
        """Waits for the turn of a part, and for room; returns the samples of a batch that it may give in this turn."""

        def may_give() -> bool:
            place = self._place
            return place.turn == part and self._samples.has_room(batch[: place.left])

        await self._lifecycle.wait_until(may_give)
        return batch[: self._place.left]

    def _number_of(self, part: int | None) -> int:
        submitters = len(self.feeds)
        if part is None and submitters > 1:
            raise InvalidArgument(
                f"the stream of job {self._job.name} has {submitters} parts (submitters), and the call names none: "
                f"give part (--part), 0 to {submitters - 1}"
            )
        if part is not None and part >= submitters:
            raise InvalidArgument(
                f"part is {part} (--part), and the stream of job {self._job.name} has "
                + (
                    "one part, number 0"
                    if submitters == 1
                    else f"{submitters} parts (submitters), 0 to {submitters - 1}"
                )
            )
        return part or 0

    def _check_stream(self, part: int, stream: str) -> None:
        """Raises FailedPrecondition if the accepted samples of a part have another name."""
        if len(stream) > MAX_STREAM_NAME:
            raise InvalidArgument(f"stream has {len(stream)} characters, and at most {MAX_STREAM_NAME} are allowed")
        accepted = self._samples.place.parts[part]
        if stream and accepted.stream and stream != accepted.stream:
            raise FailedPrecondition(
                f"{self._named(part)} has {accepted.samples} samples of {accepted.stream}, and these are {stream}: "
                "submit the former again, and it goes on behind them"
            )

    def _named(self, part: int) -> str:
        """Names a part of the stream for people."""
        return f"job {self._job.name}" if len(self.feeds) == 1 else f"part {part} of job {self._job.name}"

    async def _log_and_put(
        self, batch: SampleBatch | None, message: common_pb2.SampleBatch | None = None, part: int = 0
    ) -> None:
        """Logs samples, if the job takes checkpoints, and queues them; None is the end of the stream.

        The log gets the message, if there is one, with fields that this version does not know.

        A task of its own does it, so that it completes even if the Submit call is cut off meanwhile: samples in the log
        that are not in the queue would be trained only after a restart.
        """
        if self._checkpoints is None:
            self._put(batch, part, self.feeds[part].stream)
            return
        logs = self._log_then_put(batch, message, part, self._checkpoints)
        self._logging = logging = asyncio.create_task(logs, name="log_samples")
        await asyncio.wait([logging])
        if logging.cancelled():  # by `close`: gRPC would answer nothing to a call whose handler is cancelled
            self._lifecycle.raise_if_failed()
            raise Unavailable(f"job {self._job.name} ends, and the samples were not accepted")
        logging.result()

    async def _log_then_put(
        self,
        batch: SampleBatch | None,
        message: common_pb2.SampleBatch | None,
        part: int,
        checkpoints: Checkpoints,
    ) -> None:
        entry = LogEntry(self._samples.taken, 0)
        if batch is not None:
            message = encode_batch(batch) if message is None else message
            message.part = part
            message.stream = self.feeds[part].stream
            entry = LogEntry(self._samples.taken, len(batch), message.SerializeToString())
        await self._log(entry, checkpoints)
        self._put(batch, part, message.stream if message is not None else "")

    def _put(self, batch: SampleBatch | None, part: int, stream: str) -> None:
        if batch is None:
            self._samples.close()
        else:
            self._samples.put(batch, part, stream)
            self._moved = time.monotonic()
            for feed, merged in zip(self.feeds, self._samples.place.parts, strict=True):
                feed.ended |= merged.ended
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
