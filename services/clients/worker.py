"""The client of another worker of the job, which receives rows directly (protos/worker.proto)."""

from __future__ import annotations

from typing import Any

from esd.protos import worker_pb2, worker_pb2_grpc
from esd.services.clients.exchange import Exchange
from esd.services.clients.frame import Frame
from esd.services.clients.traffic import Traffic
from esd.services.domain.errors import Unavailable
from esd.services.domain.parcels import Parcel
from esd.services.domain.rows import RowBlock
from esd.services.domain.tables import TableSpec
from esd.services.runtime.answers import ReadableAnswers
from esd.services.runtime.channel import channel
from esd.services.runtime.retry import AWAY, repeated
from esd.services.runtime.security import Credentials
from esd.services.runtime.status import domain_errors

_DELIVER = "/esd.v1.Worker/Deliver"
_CALL_SECONDS = 10.0  # for a call that is answered at once


class AsyncWorkerClient:
    """Sends rows to one other worker, in the event loop in which it was made.

    Args:
        address: `host:port` of that worker.
        slot: its slot in the job.
        timeout: seconds that it may be silent, in addition to the time in which `traffic` moves the bytes.
        patience: seconds for which frames are sent again while the worker is unavailable.
        traffic: the link that the rows pass.
        max_message_bytes: upper bound on a message, sent or received.
        credentials: for a worker that uses TLS or asks for a token.
        caller: a name for the worker's log.
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
        self._channel = channel(address, max_message_bytes, credentials=credentials, caller=caller)
        self._stub: Any = worker_pb2_grpc.WorkerStub(ReadableAnswers(self._channel))  # type: ignore[no-untyped-call]
        stream: Any = self._channel.stream_stream(_DELIVER, None, None)  # messages are bytes
        name = f"the worker in slot {slot} at {address}"
        self._exchange = Exchange(stream, traffic, timeout, {Unavailable: patience}, name)

    async def meet(self, epoch: int, within: float) -> None:
        """Returns when the worker has been reached in its slot of this epoch.

        Args:
            epoch: the epoch that begins.
            within: seconds for which failed calls are repeated.

        Raises:
            FailedPrecondition: another worker answers at the address.
            StaleEpoch: the worker is in a later epoch.
            Unavailable, DeadlineExceeded: the worker cannot be reached.
        """
        request = worker_pb2.MeetRequest(epoch=epoch, slot=self._slot)

        async def meet() -> None:
            with domain_errors():
                await self._stub.Meet(request, timeout=_CALL_SECONDS)

        await repeated(meet, within, on=AWAY)

    def deliver(self, spec: TableSpec, rows: RowBlock, iteration: int, *, epoch: int, urgent: bool) -> list[Frame]:
        """Queues rows, and returns at once: they have been copied into the frames.

        Args:
            spec: their table.
            rows: whole rows, with their optimizer state, which the worker trains next.
            iteration: the one in which it trains them, 1 or more.
            epoch: of the plan.
            urgent: whether the frames overtake unsent frames that are not urgent.

        Returns:
            The frames of the rows. A frame is stored when the worker has accepted its rows.
        """
        return self._exchange.send(Parcel(rows), spec, epoch=epoch, iteration=iteration, urgent=urgent)

    async def close(self) -> None:
        """Closes the stream and the channel."""
        await self._exchange.close()
        await self._channel.close(None)
