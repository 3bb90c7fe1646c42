"""The beginning of each lane: which connection it belongs to, and whether the far end has reached its target."""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass
from typing import ClassVar

from esd.lanes.blocks import MalformedBlock

MOST_LANES = 64

_MAGIC = b"ESDLANE1"
_LONGEST_REASON = 4096  # bytes
_ANSWER = struct.Struct("<H")


@dataclass(frozen=True, slots=True)
class Greeting:
    """The first message of a lane, by which the far end finds the lanes that belong together.

    Attributes:
        connection: 16 random bytes.
        lanes: of the connection.
        target: the address that the connection is for.
    """

    connection: bytes
    lanes: int
    target: str

    NAME_BYTES: ClassVar[int] = 16
    LONGEST_TARGET: ClassVar[int] = 1024  # bytes
    _LAYOUT: ClassVar[struct.Struct] = struct.Struct(f"<{len(_MAGIC)}s{NAME_BYTES}sBH")

    def encode(self) -> bytes:
        """The bytes of a greeting."""
        target = self.target.encode()
        return self._LAYOUT.pack(_MAGIC, self.connection, self.lanes, len(target)) + target

    @classmethod
    async def read(cls, lane: asyncio.StreamReader) -> Greeting:
        """Reads a greeting.

        Raises:
            MalformedBlock: these bytes are none.
            EOFError: the lane ends before.
        """
        magic, connection, lanes, length = cls._LAYOUT.unpack(await lane.readexactly(cls._LAYOUT.size))
        if magic != _MAGIC or not 2 <= lanes <= MOST_LANES or length > cls.LONGEST_TARGET:
            raise MalformedBlock("the first bytes are not the greeting of a lane of this release")
        try:
            return cls(connection, lanes, (await lane.readexactly(length)).decode())
        except UnicodeDecodeError:
            raise MalformedBlock("the address in the greeting of a lane is not text") from None


def encode_answer(reason: str) -> bytes:
    """The bytes of the far end's answer on each lane: the reason why the target was not reached, or none."""
    data = reason.encode()[:_LONGEST_REASON]
    return _ANSWER.pack(len(data)) + data


async def read_answer(lane: asyncio.StreamReader) -> str:
    """Reads an answer that `encode_answer` wrote.

    Raises:
        EOFError: the lane ends before.
    """
    (length,) = _ANSWER.unpack(await lane.readexactly(_ANSWER.size))
    return (await lane.readexactly(length)).decode(errors="replace")
