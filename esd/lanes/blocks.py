"""The bytes of a connection as groups of blocks, of which any one may be missing."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

MOST_GROUP_BYTES = 1 << 18
_LEAST_BLOCK = 1200  # bytes; about what one packet carries, so that a short message needs few packets
_UPKEEP = 512  # bytes that a block which waits takes beside its content, at most


class MalformedBlock(ValueError):
    """Bytes that no end of lanes sends."""


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a block.

    Attributes:
        group: its number in the connection and direction.
        index: of the block in its group. The last one is the parity.
        blocks: k, number of blocks with data.
        size: bytes of each of them but the last, and of the parity.
        last: bytes of the last one.

    A head without blocks, `END`, follows the last block of each lane: a lane that ends before has broken.
    """

    group: int
    index: int
    blocks: int
    size: int
    last: int

    _LAYOUT: ClassVar[struct.Struct] = struct.Struct("<QHHII")
    BYTES: ClassVar[int] = _LAYOUT.size

    @classmethod
    def decode(cls, data: bytes, lanes: int) -> Head:
        """Reads a head that came over one of several lanes.

        Raises:
            MalformedBlock: no group over so many lanes has such a block.
        """
        head = cls(*cls._LAYOUT.unpack(data))
        if head == END:
            return head
        if not (0 < head.blocks < lanes and head.index <= head.blocks and 0 < head.last <= head.size):
            raise MalformedBlock(f"a block has the head {head}")
        longest = max(head.size, head.size * (head.blocks - 1) + head.last)
        if longest > MOST_GROUP_BYTES:
            raise MalformedBlock(f"a block or group of {longest} bytes is longer than {MOST_GROUP_BYTES}")
        return head

    def encode(self) -> bytes:
        """The bytes of a head, `BYTES` of them."""
        return self._LAYOUT.pack(self.group, self.index, self.blocks, self.size, self.last)

    @property
    def length(self) -> int:
        """Bytes of the block."""
        return self.last if self.index == self.blocks - 1 else self.size


END = Head(0, 0, 0, 0, 0)


def blocks_of(group: int, data: bytes, lanes: int) -> list[tuple[Head, bytes]]:
    """Cuts bytes into blocks, one per lane at most.

    Args:
        group: number of the group.
        data: at least one byte, and at most `MOST_GROUP_BYTES`.
        lanes: of the connection.

    Returns:
        Head and content of each block with data, and of the parity.
    """
    count = min(lanes - 1, math.ceil(len(data) / _LEAST_BLOCK))
    size = math.ceil(len(data) / count)
    count = math.ceil(len(data) / size)
    contents = [data[start : start + size] for start in range(0, len(data), size)]
    heads = [Head(group, index, count, size, len(contents[-1])) for index in range(count + 1)]
    return list(zip(heads, [*contents, _exclusive_or(contents, size)], strict=True))


def _exclusive_or(contents: Sequence[bytes], size: int) -> bytes:
    """Of blocks of at most `size` bytes, shorter ones as if zeros followed."""
    table = np.zeros((len(contents), size), np.uint8)
    for row, content in zip(table, contents, strict=True):
        row[: len(content)] = np.frombuffer(content, np.uint8)
    together: NDArray[np.uint8] = np.bitwise_xor.reduce(table, axis=0)
    return together.tobytes()


@dataclass(slots=True)
class _Group:
    """The blocks of a group that have come.

    Attributes:
        shape: number of blocks with data, bytes of each, and of the last one.
        blocks: by index.
    """

    shape: tuple[int, int, int]
    blocks: dict[int, bytes] = field(default_factory=dict)


class Assembly:
    """Blocks of one direction, which become its bytes again.

    Attributes:
        group: the next one, whose bytes are missing.
        held: bytes of memory that wait for the bytes before them, or for the other blocks of their group.
        restored: number of blocks that a parity has made up for.
    """

    def __init__(self) -> None:
        self.group = 0
        self.held = 0
        self.restored = 0
        self._incomplete: dict[int, _Group] = {}  # by group
        self._whole: dict[int, bytes] = {}  # by group

    def add(self, head: Head, content: bytes) -> bytes:
        """Takes a block, and returns the bytes that follow by it; none if bytes before them are missing.

        Raises:
            MalformedBlock: its group has the block already, or is of other blocks.
        """
        if head.group < self.group or head.group in self._whole:
            return b""  # the group is whole without it
        shape = (head.blocks, head.size, head.last)
        group = self._incomplete.setdefault(head.group, _Group(shape))
        if group.shape != shape:
            raise MalformedBlock(f"group {head.group} has blocks of {group.shape} and of {shape}")
        if head.index in group.blocks:
            raise MalformedBlock(f"group {head.group} has its block {head.index} twice")
        group.blocks[head.index] = content
        self.held += len(content) + _UPKEEP
        if len(group.blocks) < head.blocks:
            return b""
        del self._incomplete[head.group]
        self.held -= sum(len(block) + _UPKEEP for block in group.blocks.values())
        self._whole[head.group] = self._joined(group.blocks, head)
        self.held += len(self._whole[head.group]) + _UPKEEP
        return self._following()

    def _joined(self, blocks: dict[int, bytes], head: Head) -> bytes:
        """Returns the bytes of a group, one of whose blocks may be missing."""
        if head.blocks in blocks:
            missing = next(index for index in range(head.blocks) if index not in blocks)
            content = _exclusive_or(list(blocks.values()), head.size)
            blocks[missing] = content[: head.last] if missing == head.blocks - 1 else content
            self.restored += 1
        return b"".join(blocks[index] for index in range(head.blocks))

    def _following(self) -> bytes:
        following = []
        while self.group in self._whole:
            following.append(self._whole.pop(self.group))
            self.held -= len(following[-1]) + _UPKEEP
            self.group += 1
        return b"".join(following)
