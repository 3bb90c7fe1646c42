"""What a frame of the exchange with a parameter server carries, as columns: rows and gradients, and wishes for rows.

Rows and gradients stay where they lie, such as in a worker's cache, until the message is written.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from esd.services.domain.ids import shard_of
from esd.services.domain.rows import GradientBlock, Push, RowBlock
from esd.services.domain.tables import TableSpec

Part = slice | NDArray[np.int64]

_ID_BYTES = 16  # of an id and its version, beside a row and in a pull
_SPLIT_BYTES = 32  # beside a gradient: contributors and step as well
_PULLS_WAIT_FOR = 8  # pulls travel with pushes of at most this part of the longest message


@dataclass(frozen=True, slots=True)
class Floats:
    """Where r rows of floats lie.

    Attributes:
        table: float32 [.., W].
        slots: uint32 [r], rows of the table; None: all of them, in order.
    """

    table: NDArray[np.float32]
    slots: NDArray[np.uint32] | None = None

    def __getitem__(self, part: Part) -> Self:
        if self.slots is not None:
            return type(self)(self.table, self.slots[part])
        return type(self)(self.table[part])


@dataclass(frozen=True, slots=True)
class RowPush:
    """r rows to store.

    Attributes:
        ids: uint64 [r], distinct.
        versions: int64 [r].
        values: the rows, W floats each.
    """

    ids: NDArray[np.uint64]
    versions: NDArray[np.int64]
    values: Floats

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, part: Part) -> Self:
        return type(self)(self.ids[part], self.versions[part], self.values[part])


@dataclass(frozen=True, slots=True)
class GradientPush:
    """r partial gradients; the columns are those of services/domain/rows.py `GradientBlock`.

    Attributes:
        values: the gradients, which are the first D floats of each row.
        worker: slot of the sender.
    """

    ids: NDArray[np.uint64]
    targets: NDArray[np.int64]
    contributors: NDArray[np.uint64]
    steps: NDArray[np.uint32]
    rates: NDArray[np.float32]
    values: Floats
    worker: int

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, part: Part) -> Self:
        return type(self)(
            self.ids[part],
            self.targets[part],
            self.contributors[part],
            self.steps[part],
            self.rates[part],
            self.values[part],
            self.worker,
        )


@dataclass(frozen=True, slots=True)
class Pulls:
    """r rows to read.

    Attributes:
        ids: uint64 [r], distinct.
        versions: int64 [r], exactly which they must have.
        places: int64 [r], where each row goes in the array that takes them.
        stateless: of how many rows, the last ones, the first D floats are wanted, without their optimizer state.
    """

    ids: NDArray[np.uint64]
    versions: NDArray[np.int64]
    places: NDArray[np.int64]
    stateless: int = 0

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, part: Part) -> Self:
        """Returns some of them, in the same order."""
        chosen = range(*part.indices(len(self))) if isinstance(part, slice) else part
        stateless = len(chosen) - bisect_left(chosen, len(self) - self.stateless)
        return type(self)(self.ids[part], self.versions[part], self.places[part], stateless)

    def answer_bytes(self, spec: TableSpec) -> int:
        """Returns the bytes that the rows take in an answer."""
        return spec.row_bytes * (len(self) - self.stateless) + 4 * spec.dimension * self.stateless

    def fitting(self, first: int, size: int, spec: TableSpec) -> int:
        """Returns how many rows, from `first` on, one frame asks for: it and its answer have at most `size` bytes.

        That is one row at least, if there is one.
        """
        row, values = max(spec.row_bytes, _ID_BYTES), max(4 * spec.dimension, _ID_BYTES)
        whole = max(0, len(self) - self.stateless - first)
        count = min(whole, size // row)
        if count == whole:
            count += (size - whole * row) // values
        return min(max(count, 1), len(self) - first)


@dataclass(frozen=True, slots=True)
class Parcel:
    """What is to be exchanged at once: rows are stored first, then gradients, and then the pulls are read."""

    rows: RowPush
    gradients: GradientPush
    pulls: Pulls

    @classmethod
    def of(cls, push: Push | None = None, pulls: Pulls | None = None) -> Self:
        """Returns what a push and pulls carry; either may be left out."""
        rows, gradients = (push.rows, push.gradients) if push else (_NO_ROWS, _NO_GRADIENTS)
        return cls(
            RowPush(rows.ids, rows.versions, Floats(rows.rows)),
            GradientPush(
                gradients.ids,
                gradients.targets,
                gradients.contributors,
                gradients.steps,
                gradients.rates,
                Floats(gradients.gradients),
                gradients.worker,
            ),
            pulls or NO_PULLS,
        )

    @classmethod
    def of_rows(cls, rows: RowPush) -> Self:
        """Returns what pushes rows, and nothing else."""
        return replace(cls.of(), rows=rows)

    def __len__(self) -> int:
        return len(self.rows) + len(self.gradients) + len(self.pulls)

    def by_shard(self, shards: int) -> Iterator[tuple[int, Self]]:
        """Yields each shard with what is its own; shards with nothing are left out."""
        if shards == 1:
            if len(self):
                yield 0, self
            return
        owners = [shard_of(each.ids, shards) for each in (self.rows, self.gradients, self.pulls)]
        for shard in range(shards):
            rows, gradients, pulls = (np.flatnonzero(owner == shard) for owner in owners)
            parcel = type(self)(self.rows[rows], self.gradients[gradients], self.pulls[pulls])
            if len(parcel):
                yield shard, parcel

    def pieces(self, spec: TableSpec, size: int) -> Iterator[Self]:
        """Yields parcels, each for one frame, that take at most `size` bytes on the way there and on the way back.

        A piece has at least one row. Pulls come first, and by themselves if pushes would keep the link busy for long:
        their rows should be on their way back meanwhile.
        """
        row, gradient = spec.row_bytes + _ID_BYTES, 4 * spec.dimension + _SPLIT_BYTES
        pushed = row * len(self.rows) + gradient * len(self.gradients)
        asked = _ID_BYTES * len(self.pulls)
        alone = pushed > size // _PULLS_WAIT_FOR
        if pushed + asked <= size and self.pulls.answer_bytes(spec) <= size and not (alone and asked):
            if len(self):
                yield self
            return
        r = g = p = 0
        while r < len(self.rows) or g < len(self.gradients) or p < len(self.pulls):
            pulls = self.pulls[p : p + self.pulls.fitting(p, size, spec)]
            room = 0 if alone and len(pulls) else size - _ID_BYTES * len(pulls)
            rows = self.rows[r : r + max(room // row, not len(pulls))]
            room -= row * len(rows)
            gradients = self.gradients[g : g + max(room // gradient, not (len(pulls) or len(rows)))]
            yield type(self)(rows, gradients, pulls)
            r, g, p = r + len(rows), g + len(gradients), p + len(pulls)


_IDS, _NUMBERS, _FLOATS = np.empty(0, np.uint64), np.empty(0, np.int64), np.empty((0, 1), np.float32)
_NO_ROWS = RowBlock(_IDS, _NUMBERS, _FLOATS)
_NO_GRADIENTS = GradientBlock(_IDS, _NUMBERS, _IDS, np.empty(0, np.uint32), np.empty(0, np.float32), _FLOATS, worker=0)
NO_PULLS = Pulls(_IDS, _NUMBERS, _NUMBERS)
