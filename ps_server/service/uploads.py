"""Uploads that come in pieces and are taken whole or not at all: dense parameters, and parts of checkpoints."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from esd.protos import ps_pb2
from esd.ps_server.service.budget import Share
from esd.services.domain.errors import InvalidArgument, ResourceExhausted

_COPIES = 2  # of an upload while it is joined: as it was gathered, and as it is handed on

C = TypeVar("C", ps_pb2.PutDenseRequest, ps_pb2.PutPartRequest)


async def receive_upload(
    chunks: AsyncIterator[C], subject: Callable[[C], str], limit: int, knob: str, share: Share
) -> tuple[C, bytes]:
    """Receives one upload: its last chunk, which names what was uploaded, and the joined pieces.

    Args:
        chunks: the chunks, as they come.
        subject: says in words what a chunk is a piece of, which is the same for all chunks of an upload.
        limit: the most bytes to take.
        knob: the setting that raises the limit, for the error.
        share: takes the memory that the upload holds.

    Raises:
        InvalidArgument: it ends without its last chunk (grpc.aio shows a cut connection as a plain end), goes on
            after it, or changes its subject.
        ResourceExhausted: it is longer than `limit`.
        Overloaded: other calls hold too much.
    """
    latest: C | None = None
    data = bytearray()  # a list would hold an object for every piece, however small or empty
    async for chunk in chunks:
        if latest is not None and latest.last:
            raise InvalidArgument("the upload goes on after the chunk that is marked as the last")
        if latest is not None and subject(chunk) != subject(latest):
            raise InvalidArgument(f"the upload began for {subject(latest)} and goes on for {subject(chunk)}")
        latest = chunk
        data += chunk.data
        if len(data) > limit:
            raise ResourceExhausted(f"the upload has more than {limit} bytes; {knob} sets the limit")
        share.take(_COPIES * len(chunk.data))
    if latest is None or not latest.last:
        raise InvalidArgument(f"the upload ended after {len(data)} bytes without its last chunk; nothing is stored")
    return latest, bytes(data)
