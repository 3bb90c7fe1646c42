"""The sums of one group of workers, kept until all members have them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from esd.services.domain.errors import FailedPrecondition, InvalidArgument


@dataclass(frozen=True, slots=True)
class LoggedSum:
    """One encoded sum.

    Attributes:
        data: for the members that want it.
        name: for the others, the same without values; empty if there are none.
        unwanted: slots of these others.
    """

    data: bytes
    name: bytes = b""
    unwanted: frozenset[int] = frozenset()

    @property
    def size(self) -> int:
        """The bytes of both messages."""
        return len(self.data) + len(self.name)

    def message(self, slot: int) -> bytes:
        """Returns the message for a member."""
        return self.name if slot in self.unwanted else self.data


class SumLog:
    """Encoded sums by number, from 0. The first ones are dropped when all members have them, or for want of memory.

    Args:
        members: slots of the members.

    Attributes:
        first: number of the first sum that is here.
        bytes: of all sums that are here.
    """

    def __init__(self, members: Iterable[int]) -> None:
        self.first = 0
        self.bytes = 0
        self._sums: deque[LoggedSum] = deque()
        self._received = dict.fromkeys(members, 0)  # by slot, the number of sums that the member has

    @property
    def end(self) -> int:
        """The number of the next sum."""
        return self.first + len(self._sums)

    def append(self, each: LoggedSum) -> None:
        """Keeps the next sum."""
        self._sums.append(each)
        self.bytes += each.size

    def fitting(self, slot: int, number: int, size: int) -> list[bytes]:
        """Returns a sum for a member, whose number is in first..end - 1, and the next ones, up to so many bytes."""
        found: list[bytes] = []
        for each in islice(self._sums, number - self.first, None):
            data = each.message(slot)
            size -= len(data)
            if found and size < 0:
                break
            found.append(data)
        return found

    def bytes_from(self, slot: int, number: int) -> int:
        """Returns the bytes of a sum and of all later ones for a member."""
        return sum(len(each.message(slot)) for each in islice(self._sums, number - self.first, None))

    def confirm(self, slot: int, received: int, sent: int) -> None:
        """Records how many sums a member has, and drops the sums that all members have.

        Args:
            slot: of the member.
            received: the number of sums that it reports.
            sent: the number of sums that it can have.

        Raises:
            InvalidArgument: it reports fewer sums than before, or more than it can have.
        """
        before = self._received[slot]
        if not before <= received <= sent:
            raise InvalidArgument(
                f"worker slot {slot} reports that it has {received} pieces of sums, it must be in {before}..{sent}"
            )
        if received > before:
            self._received[slot] = received
            self._drop_received()

    def check_kept(self, slot: int, number: int) -> None:
        """Checks that a member can get all sums from a number on.

        Raises:
            FailedPrecondition: one is dropped.
        """
        if number < self.first:
            raise FailedPrecondition(
                f"worker slot {slot} lacks the pieces of sums from number {number} on, and the server has dropped all "
                f"before number {self.first} for want of memory (ESD_PS_MAX_SUM_BYTES)"
            )

    def forget(self, slot: int) -> None:
        """Records that a member needs no more sums."""
        del self._received[slot]
        self._drop_received()

    def drop_first(self) -> int:
        """Drops the first sum, and returns its bytes."""
        size = self._sums.popleft().size
        self.first += 1
        self.bytes -= size
        return size

    def _drop_received(self) -> None:
        needed = min(self._received.values(), default=self.end)
        while self.first < needed:
            self.drop_first()
