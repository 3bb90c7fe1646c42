"""Pieces of the vectors that the workers of an epoch sum at the parameter servers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esd.services.domain.worker_set import WorkerSet

PIECE_BYTES = 1 << 16  # of values in the pieces of short vectors; longer pieces have a multiple of it
LONGEST_PIECE = 8 * PIECE_BYTES

_PIECES = 16  # of a longer vector: a sum returns while its next piece is sent, and a piece costs some tenths of a ms


@dataclass(frozen=True, slots=True)
class SumMember:
    """A worker that sums, as it introduces itself to a server.

    Attributes:
        table: the first table of its job.
        epoch: of the job.
        slot: of the worker.
        members: the slots that take part in every sum.
        patience: seconds that the server waits for the other members.
        instance: a random number below 2^64, the same for all streams of the worker in the epoch.
        resumes: whether the stream continues one to which all members had come.
        sums: the number of pieces of sums that the worker has from the server.
    """

    table: str
    epoch: int
    slot: int
    members: WorkerSet
    patience: float
    instance: int
    resumes: bool = False
    sums: int = 0


@dataclass(frozen=True, slots=True)
class PieceName:
    """The place of a piece: all members send pieces of the same names in the same order.

    Attributes:
        iteration: of the plan.
        number: of the sum in the iteration, from 0.
        start: the place of the piece's first value in the vector.
        length: number of values of the whole vector.
        dtype: of the values: float32, float64, int32 or int64.
    """

    iteration: int
    number: int
    start: int
    length: int
    dtype: np.dtype[Any]

    @property
    def values(self) -> int:
        """The number of values in the piece."""
        return min(piece_values(self.dtype, self.length), self.length - self.start)

    @property
    def size(self) -> int:
        """The bytes of these values."""
        return self.values * self.dtype.itemsize

    def __str__(self) -> str:
        """Returns the name for messages."""
        return (
            f"values {self.start} to {self.start + self.values - 1} of {self.length} {self.dtype} of sum {self.number} "
            f"in iteration {self.iteration}"
        )


@dataclass(frozen=True, slots=True)
class SumPiece:
    """A piece of a member's vector, or of the sum.

    Attributes:
        name: its place.
        values: [name.values], of the name's dtype; None: all are zeros, which are not sent.
        wanted: whether the member has a use for the sum; of a sum, whether its values are here.
    """

    name: PieceName
    values: NDArray[Any] | None
    wanted: bool = True


def piece_values(dtype: np.dtype[Any], length: int) -> int:
    """Returns the number of values of a whole piece of a vector with so many values."""
    multiple = math.ceil(length * dtype.itemsize / (_PIECES * PIECE_BYTES))
    return min(max(multiple, 1) * PIECE_BYTES, LONGEST_PIECE) // dtype.itemsize


def pieces_of_shard(iteration: int, number: int, vector: NDArray[Any], shard: int, shards: int) -> Iterator[PieceName]:
    """Yields the pieces of a vector that one server sums: every `shards`-th, from the shard's number on."""
    step = piece_values(vector.dtype, len(vector))
    for start in range(shard * step, len(vector), shards * step):
        yield PieceName(iteration, number, start, len(vector), vector.dtype)
