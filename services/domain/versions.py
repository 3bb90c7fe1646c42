"""Versions of rows, which may have several lives.

A table with a limit forgets rows, and a forgotten row may come back: it is born anew, as if it had never been trained.
A version names both: life x 2^30 + how often the row was trained in that life. Lives only rise, so every version of a
new life is above all of the old ones; in a table that forgets nothing all rows are in life 0, and a version is a number
of trainings.
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
    """Returns the versions that began the same lives, int64 [r]: their rows have their initial values."""
    return versions & ~_TRAININGS
