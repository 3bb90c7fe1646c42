"""Columns of sets of workers as numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def listed(column: NDArray[Any]) -> list[int]:
    """The numbers of a column; a set of workers that takes two words, uint64 [r, 2], is one number."""
    if column.ndim == 1:
        numbers: list[int] = column.tolist()
        return numbers
    return [low | high << 64 for low, high in column.astype(np.uint64).tolist()]
