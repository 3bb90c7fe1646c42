"""The streams on which other workers send rows to this one (protos/worker.proto, Deliver).

A stream is read one frame at a time, and the next one only when this one is answered. So a worker that sends more than
this one takes in fills the window of its own stream, and no memory here. Workers cannot wait for each other in a
circle: rows wait for nothing but the plan of their iteration, which this worker takes when it trains the iteration
before, and rows for that one were sent before, on the same stream.
"""

from __future__ import annotations

import logging
from typing import Any

import grpc

from esd.services.domain.errors import FailedPrecondition, InvalidArgument, StaleEpoch, Unavailable
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

# What a worker may have on its way here. It is not kept here: it only tells it when to go on making frames.
_CREDIT = Credit(frames=256, bytes=32 * MAX_FRAME_BYTES)

_log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]


class Deliveries:
    """Takes what other workers send, in whatever epoch this one is.

    Args:
        name: of this worker.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._inbox: Inbox | None = None
        self._link: Link | None = None

    def begin(self, inbox: Inbox, link: Link) -> None:
        """Takes rows from now on: into this inbox, and over this link."""
        self._inbox = inbox
        self._link = link

    def end(self) -> None:
        """Takes no rows until another epoch begins."""
        self._inbox = self._link = None

    def meet(self, epoch: int, slot: int) -> None:
        """Tells another worker whether this one is whom it expects in an epoch.

        Raises:
            FailedPrecondition: it is in another slot.
            StaleEpoch: it is in a later epoch.
            Unavailable: it is not in that epoch yet.
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
            pass  # what gRPC raises when the peer goes in the middle of a message: there is nobody to answer

    async def _answer(self, data: bytes) -> bytes:
        sequence = sequence_of(data)
        try:
            if len(data) > MAX_FRAME_BYTES:
                raise InvalidArgument(f"the frame has {len(data)} bytes, and at most {MAX_FRAME_BYTES} are taken")
            inbox, link = self._inbox, self._link
            if inbox is None or link is None:
                raise Unavailable(f"worker {self._name} takes no rows now")
            await link.receive_in_parts(len(data))
            stored = await inbox.take(decode_delivery(data, inbox.tables), len(data))
        except Exception as error:  # noqa: BLE001 - the edge of a frame: everything becomes a refusal
            status = status_of(error)
            _log.info("frame %d of another worker refused: %s", sequence, status.details)
            return encode_refusal(sequence, None, status.code.value[0], status.reason, status.details)
        return encode_stored(sequence, stored)
