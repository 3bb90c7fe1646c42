"""Messages of the dispatcher that are too long for one: each travels as the pieces of its encoded bytes."""

from __future__ import annotations

from collections.abc import Iterator

from esd.protos import dispatcher_pb2 as pb

PIECE_BYTES = 8 << 20  # far below the default limit of an answer (max_message_bytes), and long enough for full speed
_OVERHEAD = 64  # bytes of a message besides the piece that it has


def pieces_of(message: bytes, longest: int) -> Iterator[pb.Piece]:
    """Yields a long message as pieces; none if it can be sent as it is.

    Args:
        message: the encoded message.
        longest: the most bytes of a message that the receiver accepts.
    """
    size = min(PIECE_BYTES, longest - _OVERHEAD)
    if len(message) > size:
        for start in range(0, len(message), size):
            data = message[start : start + size]
            yield pb.Piece(data=data, left=len(message) - start - len(data))


class PieceBuffer:
    """The pieces of a long message, until it is complete."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def __len__(self) -> int:
        return len(self._pieces)

    def add(self, piece: pb.Piece) -> bytes | None:
        """Returns the message that is complete with this piece; None if more pieces follow."""
        self._pieces.append(piece.data)
        if piece.left:
            return None
        whole = b"".join(self._pieces)
        self._pieces.clear()
        return whole
