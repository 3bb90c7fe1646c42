"""The sums of one group of workers: pieces of vectors, added in the order of the workers (protos/ps.proto, Sum)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esd.services.domain.errors import InvalidArgument
from esd.services.domain.sum_pieces import PieceName, SumPiece, piece_values
from esd.services.domain.worker_set import WorkerSet


@dataclass(frozen=True, slots=True)
class Sum:
    """A piece of a sum, which is complete.

    Attributes:
        piece: its place and values.
        unwanted: slots of the members that have no use for it.
    """

    piece: SumPiece
    unwanted: frozenset[int]


class DenseSums:
    """Adds up the pieces that the members of a group send, each member in the same order.

    A piece of a member is added when the pieces of all members in lower slots are, and waits until then. So a sum does
    not depend on the order of arrival.

    Args:
        members: the slots that take part in every sum.
        shard: number of this server.
        shards: number of servers, over which the pieces of a vector are spread.

    Attributes:
        held: bytes of values that wait, for their turn or for other members.
    """

    def __init__(self, members: WorkerSet, shard: int, shards: int) -> None:
        self.held = 0
        self._members = tuple(members)
        self._rank = {slot: rank for rank, slot in enumerate(self._members)}
        self._shard = shard
        self._shards = shards
        self._sent = [0] * len(self._members)  # number of pieces of each member
        self._open: deque[_OpenSum] = deque()  # from the first that a member lacks to the last that one has sent
        self._before = 0  # number of sums that are complete
        self._last: PieceName | None = None  # of the last open sum, or of the last complete one

    def due(self, slot: int) -> bool:
        """Returns whether the next piece of a member would be added at once. It is so for at least one member."""
        rank = self._rank[slot]
        return all(sent > self._sent[rank] for sent in self._sent[:rank])

    def pieces_of(self, slot: int) -> int:
        """Returns how many pieces of a member have come."""
        return self._sent[self._rank[slot]]

    def missing(self) -> tuple[str, list[int]] | None:
        """Returns the name of the first incomplete sum and the slots of the members that it lacks; None: none is."""
        if not self._open:
            return None
        lacking = [slot for slot, sent in zip(self._members, self._sent, strict=True) if sent == self._before]
        return str(self._open[0].name), lacking

    def add(self, slot: int, piece: SumPiece) -> Sum | None:
        """Takes the next piece of a member; returns the sum when it was the last addend.

        Raises:
            InvalidArgument: the piece is not the next one, differs in place or type from another member's piece, or has
                a value that is not finite.
        """
        name, values = piece.name, piece.values
        if values is not None and values.dtype.kind == "f" and not np.isfinite(values).all():
            raise InvalidArgument(f"worker slot {slot} has sent {name} with a value that is NaN or infinite")
        rank = self._rank[slot]
        place = self._sent[rank] - self._before
        if place == len(self._open):
            self._begin(slot, name)
        elif name != (expected := self._open[place].name):
            raise InvalidArgument(f"worker slot {slot} has sent {name}, where another worker has sent {expected}")
        self._sent[rank] += 1
        current = self._open[place]
        self.held += current.add(rank, values)
        if not piece.wanted:
            current.unwanted.add(slot)
        if current.added < len(self._members):
            return None
        self._open.popleft()  # all earlier sums are complete, since every member sends its pieces in order
        self._before += 1
        if current.total is not None:
            self.held -= current.total.nbytes
        return Sum(SumPiece(name, current.total), frozenset(current.unwanted))

    def _begin(self, slot: int, name: PieceName) -> None:
        """Opens the sum of a piece that no other member has sent. Raises InvalidArgument if it is not the next one."""
        last = self._last
        start = 0 if last is None else last.start + self._shards * piece_values(last.dtype, last.length)
        if last is not None and start < last.length:
            follows = name == PieceName(last.iteration, last.number, start, last.length, last.dtype)
        else:
            later = last is None or (name.iteration, name.number) > (last.iteration, last.number)
            follows = later and name.start == self._shard * piece_values(name.dtype, name.length)
        if not follows:
            raise InvalidArgument(f"worker slot {slot} has sent {name}, which does not follow {last or 'nothing'}")
        self._open.append(_OpenSum(name))
        self._last = name


class _OpenSum:
    """One piece of a sum, which lacks addends.

    Attributes:
        name: its place.
        added: number of members whose values are in `total`, which are the first ones.
        total: the sum of their values; None: all are zeros.
        unwanted: slots of the members that have no use for it.
    """

    def __init__(self, name: PieceName) -> None:
        self.name = name
        self.added = 0
        self.total: NDArray[Any] | None = None
        self.unwanted: set[int] = set()
        self._owned = False  # whether `total` is an array of its own, and not the message of a member
        self._waiting: dict[int, NDArray[Any] | None] = {}

    def add(self, rank: int, values: NDArray[Any] | None) -> int:
        """Takes the values of a member; returns the bytes that are held now and were not before."""
        self._waiting[rank] = values
        more = 0 if values is None else values.nbytes
        while self.added in self._waiting:
            more -= self._add(self._waiting.pop(self.added))
            self.added += 1
        return more

    def _add(self, values: NDArray[Any] | None) -> int:
        """Adds values to the sum; returns the bytes that are not needed any more."""
        if values is None:
            return 0
        if self.total is None:
            self.total = values
            return 0
        with np.errstate(over="ignore"):  # an infinite sum shows in the next loss, which names the iteration
            if self._owned:
                self.total += values
            else:
                self.total = self.total + values
                self._owned = True
        return values.nbytes
