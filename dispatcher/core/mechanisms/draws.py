"""Random numbers as a pure function of seed, iteration and position: no state, no library version."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from services.domain.ids import mix64

_STEP = 0x9E3779B97F4A7C15  # 2^64 divided by the golden ratio, splitmix64's increment
_MASK = 2**64 - 1


def start_of(seed: int, iteration: int) -> int:
    """Where the sequence of one iteration starts, in 0..2^64-1."""
    return _mix(_mix((seed + _STEP) & _MASK) ^ _mix((iteration + 1) * _STEP & _MASK))


def _mix(x: int) -> int:
    """mix64 of one number, much faster than of an array with one element."""
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & _MASK
    return x ^ x >> 31


def draws(seed: int, iteration: int, count: int) -> NDArray[np.uint64]:
    """`count` independent uniform draws for one iteration, uint64 [count]: splitmix64 from a mixed start."""
    steps = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(_STEP)
    return mix64(np.uint64(start_of(seed, iteration)) + steps)
