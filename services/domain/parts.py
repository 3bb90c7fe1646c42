"""Parts of checkpoints in pieces of a bounded size, so that no store and no message limits the size of a part.

The pieces of part `dense` are stored as parts `dense`, `dense-1`, `dense-2` and so on. All but the last have
`PIECE_BYTES` bytes, and the last has fewer, so that a reader knows where the part ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

PIECE_BYTES = 64 << 20

B = TypeVar("B", bytes, memoryview)


def piece_name(part: str, number: int) -> str:
    """Returns the name under which a piece of a part is stored; pieces count from 0."""
    return f"{part}-{number}" if number else part


def named_pieces(part: str, data: B, size: int = PIECE_BYTES) -> Iterator[tuple[str, B]]:
    """Yields the pieces of a part with their names; of a view without a copy."""
    for number, start in enumerate(range(0, len(data) + 1, size)):
        yield piece_name(part, number), data[start : start + size]


def is_last(piece: bytes, size: int = PIECE_BYTES) -> bool:
    """Returns whether a part ends with this piece."""
    return len(piece) != size
