"""The order of the messages of several partitions: fixed turns, so that every reading has the same one."""

from __future__ import annotations

import re
from collections.abc import Mapping

from esd.services.domain.errors import InvalidArgument

TURN = 64  # messages of a partition before the next one's: few, since a turn waits for messages that are still to come
_POSITION = re.compile(r"(\d{1,9})\+(\d{1,3})@(\d{1,9}=\d{1,19}(?:,\d{1,9}=\d{1,19})*)")


class Turns:
    """The place of a reader: each partition in turn gives `TURN` messages, in the order of their numbers.

    Nothing else decides the order, such as which messages arrive first. A partition without further messages therefore
    holds the others up until it has some, or is read to its bound.

    Args:
        offsets: of the next message of each partition.
        partition: the one whose turn it is; another one is next if it is not among `offsets`.
        given: messages that it has given in this turn.

    Attributes:
        offsets, partition: see above.
    """

    def __init__(self, offsets: Mapping[int, int], partition: int = 0, given: int = 0) -> None:
        self.offsets = dict(sorted(offsets.items()))
        self.partition = partition
        self._given = given
        if partition not in self.offsets:
            self.skip()

    @classmethod
    def parse(cls, text: str) -> Turns:
        """Reads a place, as `str` has written it.

        Raises:
            InvalidArgument: it is none.
        """
        found = _POSITION.fullmatch(text)
        if found is None:
            raise InvalidArgument(f"{text[:80]!r} is no position in a topic, such as 0+17@0=1217,1=1200")
        pairs = [each.split("=") for each in found[3].split(",")]
        offsets = {int(partition): int(offset) for partition, offset in pairs}
        if int(found[1]) not in offsets or int(found[2]) >= TURN:
            raise InvalidArgument(f"{text[:80]!r} is no position in a topic: it is the turn of no partition")
        return cls(offsets, int(found[1]), int(found[2]))

    def __str__(self) -> str:
        """Writes the place down; `:` is not in it."""
        offsets = ",".join(f"{partition}={offset}" for partition, offset in self.offsets.items())
        return f"{self.partition}+{self._given}@{offsets}"

    @property
    def left(self) -> int:
        """Messages that the partition still has to give in this turn."""
        return TURN - self._given

    def reach(self, offset: int) -> None:
        """Takes note that the next message of the partition has this offset: not every number has one."""
        self.offsets[self.partition] = offset

    def give(self, messages: int, offset: int) -> None:
        """Takes note of messages of the partition, at most `left`, and of the offset behind them."""
        self.offsets[self.partition] = offset
        self._given += messages
        if self._given == TURN:
            self.skip()

    def add(self, partition: int, offset: int) -> None:
        """Adds a partition, which begins at an offset when its turn comes."""
        self.offsets = dict(sorted([*self.offsets.items(), (partition, offset)]))

    def skip(self) -> None:
        """Ends the turn of the partition: it is the next one's."""
        behind = (each for each in self.offsets if each > self.partition)
        self.partition, self._given = next(behind, min(self.offsets)), 0
