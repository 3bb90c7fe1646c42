"""Versions of rows, which may have several lives.

A table with a limit forgets rows, and a forgotten row may come back: it then starts a new life, untrained. A version
encodes both: life x 2^30 + the number of trainings in that life. Lives only rise, so every version of a new life is
above all versions of the old ones. In a table that forgets nothing all rows are in life 0, and a version is a number of
trainings.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MAX_VERSION = 2**53 - 1  # stores may compare versions as float64 (Lua in Redis does)
_TRAININGS = np.int64(2**30 - 1)


def trainings(versions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns how often rows at these versions were trained in their present life, int64 [r]."""
    return versions & _TRAININGS


def at_birth(versions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the first version of the life of each version, int64 [r]: at it a row has its initial values."""
    return versions & ~_TRAININGS
