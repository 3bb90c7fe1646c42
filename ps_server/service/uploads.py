"""Takes in what comes in pieces, whole or not at all: dense parameters, parts of checkpoints."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from protos import ps_pb2
from services.domain.errors import InvalidArgument, ResourceExhausted

C = TypeVar("C", ps_pb2.DenseChunk, ps_pb2.PartChunk)


async def receive_upload(chunks: AsyncIterator[C], place: Callable[[C], str], limit: int, knob: str) -> tuple[C, bytes]:
    """The last chunk, which names what was uploaded, and the joined pieces of one upload.

    Args:
        chunks: the upload.
        place: what a chunk is for, in words; the same for all chunks of an upload.
        limit: most bytes to take.
        knob: what to turn when that is too few.

    Raises:
        InvalidArgument: it ends without its last chunk (grpc.aio shows a cut connection as a plain end), goes on
            after it, or changes its place.
        ResourceExhausted: it is longer than `limit`.
    """
    latest: C | None = None
    pieces: list[bytes] = []
    size = 0
    async for chunk in chunks:
        if latest is not None and latest.last:
            raise InvalidArgument("the upload goes on after the chunk that is marked as the last")
        if latest is not None and place(chunk) != place(latest):
            raise InvalidArgument(f"the upload began for {place(latest)} and goes on for {place(chunk)}")
        latest = chunk
        pieces.append(chunk.data)
        size += len(pieces[-1])
        if size > limit:
            raise ResourceExhausted(f"the upload has more than {limit} bytes; {knob} sets the limit")
    if latest is None or not latest.last:
        raise InvalidArgument(f"the upload ended after {size} bytes without its last chunk; nothing is stored")
    return latest, b"".join(pieces)
