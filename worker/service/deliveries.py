"""The streams on which other workers send rows to this one (protos/worker.proto, Deliver).

A stream is read one frame at a time, the next one only when the last one is answered. So a worker that sends faster
than this one accepts fills the window of its own stream, and no memory here. Workers cannot wait for each other in a
circle: rows wait only for the plan of their iteration, which this worker enters while it trains the previous iteration,
whose rows were sent earlier on the same stream.

The frames that wait, for this worker's link or for their plan, have a budget over all streams: a peer that opens many
streams cannot fill the memory. A job has one stream for each other worker.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from esd.services.domain.errors import FailedPrecondition, InvalidArgument, Overloaded, StaleEpoch, Unavailable
from esd.services.runtime.status import status_of
from esd.services.wire.deliveries import decode_delivery
from esd.services.wire.exchange import (
    MAX_FRAME_BYTES,
    Credit,
    encode_credit,
    encode_refusal,
    encode_stored,
    sequence_of,
)
from esd.worker.service.inbox import Inbox
from esd.worker.service.link import Link

# Upper bound on the frames that a worker may have on their way here. It paces the sender; nothing is buffered here.
_CREDIT = Credit(frames=256, bytes=32 * MAX_FRAME_BYTES)

_WAITING_BYTES = 128 * MAX_FRAME_BYTES  # of all streams; a frame beyond is refused, and its sender tries again

_log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]


class Deliveries:
    """Serves the streams of other workers, over all epochs of this one.

    Args:
        name: of this worker.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._inbox: Inbox | None = None
        self._link: Link | None = None
        self._waiting = 0  # bytes of the frames that wait

    def begin(self, inbox: Inbox, link: Link) -> None:
        """Accepts rows from now on, into an inbox and over a link."""
        self._inbox = inbox
        self._link = link

    def end(self) -> None:
        """Refuses rows until another epoch begins."""
        self._inbox = self._link = None

    def meet(self, epoch: int, slot: int) -> None:
        """Checks for another worker that this worker is in a slot of an epoch.

        Raises:
            FailedPrecondition: this worker is in another slot.
            StaleEpoch: this worker is in a later epoch.
            Unavailable: this worker is not in the epoch yet.
        """
        inbox = self._inbox
        if inbox is None or inbox.epoch < epoch:
            raise Unavailable(f"worker {self._name} is not in epoch {epoch} yet")
        if inbox.epoch > epoch:
            raise StaleEpoch(f"worker {self._name} is in epoch {inbox.epoch}, and epoch {epoch} is over")
        if inbox.slot != slot:
            raise FailedPrecondition(f"worker {self._name} answers, which is in slot {inbox.slot}")

    async def serve(self, context: Context) -> None:
        """Serves one stream until its peer has closed its side."""
        try:
            await context.write(encode_credit(_CREDIT))
            while (data := await context.read()) is not grpc.aio.EOF:  # type: ignore[attr-defined]
                await context.write(await self._answer(data))
        except grpc.aio.InternalError:
            pass  # raised when the peer leaves in the middle of a message: no answer can reach it

    async def _answer(self, data: bytes) -> bytes:
        sequence = sequence_of(data)
        try:
            if len(data) > MAX_FRAME_BYTES:
                raise InvalidArgument(f"the frame has {len(data)} bytes, and at most {MAX_FRAME_BYTES} are taken")
            inbox, link = self._inbox, self._link
            if inbox is None or link is None:
                raise Unavailable(f"worker {self._name} takes no rows now")
            link.received(rows=len(data))
            with self._room_for(len(data)):
                await link.receive_in_parts(len(data))
                stored = await inbox.take(decode_delivery(data, inbox.tables), len(data))
        except Exception as error:  # noqa: BLE001 - the edge of a frame: everything becomes a refusal
            status = status_of(error)
            _log.info("frame %d of another worker refused: %s", sequence, status.details)
            return encode_refusal(sequence, None, status.code.value[0], status.reason, status.details)
        answer = encode_stored(sequence, stored)
        link.sent(other=len(answer))
        return answer

    @contextmanager
    def _room_for(self, size: int) -> Iterator[None]:
        """Counts a frame that waits. Raises Overloaded if too many bytes wait already."""
        if self._waiting + size > _WAITING_BYTES:
            raise Overloaded(
                f"{self._waiting} bytes of rows wait at worker {self._name}, and at most {_WAITING_BYTES} may; send "
                f"them again"
            )
        self._waiting += size
        try:
            yield
        finally:
            self._waiting -= size
