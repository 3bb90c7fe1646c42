"""A part of a checkpoint in pieces that every store takes: a part of its own each, so that its size ends no job."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

PIECE_BYTES = 64 << 20  # below the limit of a part at the parameter server (ESD_PS_MAX_PART_BYTES)


def pieces(name: str, data: bytes, size: int = PIECE_BYTES) -> dict[str, bytes]:
    """Returns the data in pieces by name: NAME, NAME-1, NAME-2 and so on, of `size` bytes each but for the last."""
    if len(data) <= size:
        return {name: data}
    return {_name(name, at): data[at * size : (at + 1) * size] for at in range(-(-len(data) // size))}


async def join(name: str, exists: Callable[[str], bool], read: Callable[[str], Awaitable[bytes]]) -> bytes:
    """Returns the data whose pieces `read` returns by name, as far as they exist; the first one must."""
    found = [await read(name)]
    while exists(piece := _name(name, len(found))):
        found.append(await read(piece))
    return found[0] if len(found) == 1 else b"".join(found)


def _name(name: str, at: int) -> str:
    return f"{name}-{at}" if at else name
