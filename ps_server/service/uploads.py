"""Uploads that arrive in pieces and are stored whole or not at all: dense parameters, and parts of checkpoints."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from esd.protos import ps_pb2
from esd.services.domain.errors import InvalidArgument, ResourceExhausted
from esd.services.runtime.byte_budget import Share

_COPIES = 2  # of an upload in memory while its pieces are joined: the buffer and the joined bytes

C = TypeVar("C", ps_pb2.PutDenseRequest, ps_pb2.PutPartRequest)


async def receive_upload(
    chunks: AsyncIterator[C], subject: Callable[[C], str], limit: int, remedy: str, share: Share
) -> tuple[C, bytes]:
    """Receives one upload; returns its last chunk, which names the upload, and the joined pieces.

    Args:
        chunks: the chunks, in the order of their arrival.
        subject: describes the destination of a chunk; the description must be the same for all chunks of an upload.
        limit: the most bytes of an upload.
        remedy: the way to allow a longer upload, for the error.
        share: the share of the memory budget that the upload uses.

    Raises:
        InvalidArgument: the upload ends without its last chunk (grpc.aio reports a cut connection as a plain end),
            continues after it, or changes its subject.
        ResourceExhausted: the upload is longer than `limit`.
        Overloaded: other calls hold too much memory.
    """
    latest: C | None = None
    data = bytearray()  # a list would hold an object for every piece, however small or empty
    async for chunk in chunks:
        if latest is not None and latest.last:
            raise InvalidArgument("the upload continues after the chunk that is marked as the last")
        if latest is not None and subject(chunk) != subject(latest):
            raise InvalidArgument(f"the upload began for {subject(latest)} and continues for {subject(chunk)}")
        latest = chunk
        data += chunk.data
        if len(data) > limit:
            raise ResourceExhausted(f"the upload has more than {limit} bytes; {remedy}")
        share.take(_COPIES * len(chunk.data))
    if latest is None or not latest.last:
        raise InvalidArgument(f"the upload ended after {len(data)} bytes without its last chunk; nothing is stored")
    return latest, bytes(data)
