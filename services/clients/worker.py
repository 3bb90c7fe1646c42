"""The client of another worker of the job, to which rows go directly (protos/worker.proto)."""

from __future__ import annotations

from typing import Any

from esd.protos import worker_pb2, worker_pb2_grpc
from esd.services.clients.exchange import Exchange
from esd.services.clients.frames import Frame
from esd.services.clients.traffic import Traffic
from esd.services.domain.errors import Unavailable
from esd.services.domain.frames import Parcel, RowPush
from esd.services.domain.tables import TableSpec
from esd.services.runtime.answers import ReadableAnswers
from esd.services.runtime.channel import channel
from esd.services.runtime.retry import AWAY, repeated
from esd.services.runtime.security import Credentials
from esd.services.runtime.status import domain_errors
from esd.services.wire.frames import encode_parcel

_DELIVER = "/esd.v1.Worker/Deliver"
_CALL_SECONDS = 10.0  # for a call that is answered at once


class AsyncWorkerClient:
    """Sends rows to one other worker, in the event loop in which it was made.

    Args:
        address: `host:port` at which that worker is reached.
        slot: its slot in the job.
        timeout: seconds that it may be silent, beside the time in which `traffic` moves the bytes.
        patience: for how many seconds frames are sent again while it is unavailable.
        traffic: what the rows pass on their way.
        max_message_bytes: longest message sent or taken.
        credentials: for a worker that uses TLS or asks for a token.
        caller: a name for its log.
    """

    def __init__(
        self,
        address: str,
        slot: int,
        *,
        timeout: float,
        patience: float,
        traffic: Traffic,
        max_message_bytes: int,
        credentials: Credentials,
        caller: str,
    ) -> None:
        self._slot = slot
        self._traffic = traffic
        self._channel = channel(address, max_message_bytes, credentials=credentials, caller=caller)
        self._stub: Any = worker_pb2_grpc.WorkerStub(ReadableAnswers(self._channel))  # type: ignore[no-untyped-call]
        stream: Any = self._channel.stream_stream(_DELIVER, None, None)  # messages are bytes
        name = f"the worker in slot {slot} at {address}"
        self._exchange = Exchange(stream, traffic, timeout, {Unavailable: patience}, name)

    async def meet(self, epoch: int, within: float) -> None:
        """Returns when the worker is in its slot of this epoch and has been reached.

        Args:
            epoch: that begins.
            within: seconds to try again for.

        Raises:
            FailedPrecondition: another worker is there.
            StaleEpoch: it is in a later epoch.
            Unavailable, DeadlineExceeded: it cannot be reached.
        """
        request = worker_pb2.MeetRequest(epoch=epoch, slot=self._slot)

        async def meet() -> None:
            with domain_errors():
                await self._stub.Meet(request, timeout=_CALL_SECONDS)

        await repeated(meet, within, on=AWAY)

    def deliver(self, spec: TableSpec, rows: RowPush, iteration: int, *, epoch: int, urgent: bool) -> list[Frame]:
        """Sends rows as soon as they may be sent, and returns at once: they have been read.

        Args:
            spec: their table.
            rows: whole ones, with their optimizer state, which the worker trains next.
            iteration: in which it does, 1 or more.
            epoch: of the plan.
            urgent: they go before what is not, and was not sent yet.

        Returns:
            The frames that carry them. They are stored when the worker has taken them in.
        """
        frames = []
        for piece in Parcel.of_rows(rows).pieces(spec, self._traffic.chunk_bytes):
            message = encode_parcel(piece, spec, self._exchange.number(), epoch=epoch, iteration=iteration)
            frame = Frame(message)
            self._exchange.submit(frame, urgent=urgent)
            frames.append(frame)
        return frames

    async def close(self) -> None:
        """Closes the stream and the channel."""
        await self._exchange.close()
        await self._channel.close(None)
