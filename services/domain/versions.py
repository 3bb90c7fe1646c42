"""Versions of rows, which may have several lives.

A version encodes the life of a row and its trainings: life x 2^30 + the number of trainings in that life. Lives only
rise, so every version of a new life is above all versions of the lives before it.

A row that is born in an even life has its initial values: it is new, or the table has forgotten it. A row that is born
in an odd life continues with the row of the parameter server. The dispatcher no longer knows such a row, since no
worker has cached it for a while; all pushes of it are durable by then, so the parameter server has the latest value.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MAX_VERSION = 2**53 - 1  # stores may compare versions as float64 (Lua in Redis does)
_LIFE = np.int64(2**30)
_TRAININGS = _LIFE - 1


def trainings(versions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns how often rows at these versions were trained in their present life, int64 [r]."""
    return versions & _TRAININGS


def at_birth(versions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the first version of the life of each version, int64 [r]."""
    return versions & ~_TRAININGS


def continues(versions: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Returns whether the life of each version began with the row that the parameter server had, bool [r]."""
    continued: NDArray[np.bool_] = (versions & _LIFE) != 0
    return continued
