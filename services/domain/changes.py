"""The changed rows of a table as their readers get them: rows, and the ends of rounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class RoundEnd:
    """The end of a round: the reader has all changes up to here.

    Attributes:
        position: from which the reader goes on after a break.
        age: seconds since the first change of the round; 0 without any.
        checkpoint: the table's latest checkpoint; 0: none.
        finished: whether the job of the table has ended.
    """

    position: bytes
    age: float
    checkpoint: int
    finished: bool


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """A part of a round.

    Attributes:
        anew: whether a round begins that has all stored rows of the server: any other row has its initial values.
        ids: uint64 [c], distinct.
        values: float32 [c, D].
        end: of the round; None: more of it follows.
    """

    anew: bool
    ids: NDArray[np.uint64]
    values: NDArray[np.float32]
    end: RoundEnd | None = None
