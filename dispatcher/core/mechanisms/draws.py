"""Random numbers as a pure function of seed, iteration and position: no state, no library version."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from services.domain.ids import mix64

_STEP = 0x9E3779B97F4A7C15  # 2^64 divided by the golden ratio, splitmix64's increment
_MASK = 2**64 - 1


def start_of(seed: int, iteration: int) -> int:
    """Where the sequence of one iteration starts, in 0..2^64-1."""
    start = mix64(np.array([(seed + _STEP) & _MASK], np.uint64))
    return int(mix64(start ^ mix64(np.array([(iteration + 1) * _STEP & _MASK], np.uint64)))[0])


def draws(seed: int, iteration: int, count: int) -> NDArray[np.uint64]:
    """`count` independent uniform draws for one iteration, uint64 [count]: splitmix64 from a mixed start."""
    steps = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(_STEP)
    return mix64(np.uint64(start_of(seed, iteration)) + steps)
