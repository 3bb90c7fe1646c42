"""Parcels: pushes and pulls of one table that travel together.

Rows and gradients stay where they lie, such as in a worker's cache, until the message is written.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from esd.services.domain.ids import shard_of
from esd.services.domain.rows import GradientBlock, RowBlock
from esd.services.domain.tables import TableSpec

_ID_BYTES = 16  # of an id and its version, in addition to a row and in a pull
_MARK_BYTES = 5  # of the place of a row among the pulls, and of its form, in an answer that names them
_SPLIT_BYTES = 24  # in addition to a gradient and its contributors: an id, a version, the step and its rate
_PULLS_WAIT_FOR = 8  # pulls travel with pushes of at most this part of the longest message


@dataclass(frozen=True, slots=True)
class Pulls:
    """r rows to read.

    Attributes:
        ids: uint64 [r], distinct.
        versions: int64 [r], the exact versions to read.
        places: int64 [r], the place of each row in the array that receives them.
        stateless: number of rows, at the end, of which the first D floats are read, without their optimizer state.
    """

    ids: NDArray[np.uint64]
    versions: NDArray[np.int64]
    places: NDArray[np.int64]
    stateless: int = 0

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, part: slice | NDArray[np.int64]) -> Self:
        """Returns some of the pulls, in the same order."""
        chosen = range(*part.indices(len(self))) if isinstance(part, slice) else part
        stateless = len(chosen) - bisect_left(chosen, len(self) - self.stateless)
        return type(self)(self.ids[part], self.versions[part], self.places[part], stateless)

    def answer_bytes(self, spec: TableSpec) -> int:
        """Returns the bytes that the rows take in an answer."""
        return spec.row_bytes * (len(self) - self.stateless) + 4 * spec.dimension * self.stateless

    def fitting(self, first: int, size: int, spec: TableSpec) -> int:
        """Returns the number of rows, from `first` on, that one frame can ask for.

        The frame and its answer have at most `size` bytes each, so that a store reads the rows in one go if all are
        there. The number is at least 1, if there is a row.
        """
        row, values = (max(each + _MARK_BYTES, _ID_BYTES) for each in (spec.row_bytes, 4 * spec.dimension))
        whole = max(0, len(self) - self.stateless - first)
        count = min(whole, size // row)
        if count == whole:
            count += (size - whole * row) // values
        return min(max(count, 1), len(self) - first)


_IDS, _NUMBERS, _FLOATS = np.empty(0, np.uint64), np.empty(0, np.int64), np.empty((0, 1), np.float32)
NO_ROWS = RowBlock(_IDS, _NUMBERS, _FLOATS)
NO_GRADIENTS = GradientBlock(_IDS, _NUMBERS, _IDS, np.empty(0, np.uint32), np.empty(0, np.float32), _FLOATS, worker=0)
NO_PULLS = Pulls(_IDS, _NUMBERS, _NUMBERS)


@dataclass(frozen=True, slots=True)
class Parcel:
    """Pushes and pulls that travel together: rows are stored first, then gradients, and then the pulls are read.

    Attributes:
        rows: to store.
        gradients: to store.
        pulls: rows to read.
    """

    rows: RowBlock = NO_ROWS
    gradients: GradientBlock = NO_GRADIENTS
    pulls: Pulls = NO_PULLS

    def __len__(self) -> int:
        return len(self.rows) + len(self.gradients) + len(self.pulls)

    def by_shard(self, shards: int) -> Iterator[tuple[int, Self]]:
        """Yields each shard with its part of the parcel, except for shards without a part."""
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
        """Yields the parcel in pieces, each for one frame; a frame and its answer have at most `size` bytes each.

        A piece has at least one row. Pulls come first, and alone if the pushes would occupy the link for long, so that
        the pulled rows travel back while the pushes travel there.
        """
        row = spec.row_bytes + _ID_BYTES
        gradient = 4 * spec.dimension + _SPLIT_BYTES + 8 * math.prod(self.gradients.contributors.shape[1:])
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
