"""Learning rates that change while a job trains: pure functions of the iteration.

A rate is the optimizer's own times the schedule's factor. Every worker computes the factor by itself, so it uses only
sums and products of doubles, which are the same on all machines; the cosines and powers of two mathematical libraries
may differ in their last bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from esd.services.domain.errors import InvalidArgument

_TERMS = 14  # of the cosine's series; up to half a turn, the next term is below the last bit
_MOST_ITERATIONS = 2**32 - 1  # as the number travels


class Decay(Enum):
    """The course of the rate after the warm-up. The value is the name in options and files.

    Example:
        >>> [decay.value for decay in esd.Decay]
        ['constant', 'cosine', 'step']
    """

    CONSTANT = "constant"
    COSINE = "cosine"
    STEP = "step"


@dataclass(frozen=True, slots=True)
class Schedule:
    """The factor of a learning rate, by iteration.

    It rises linearly to 1 in the first `warm_up` iterations: iteration t < warm_up has (t + 1) / warm_up. From then on:

    - CONSTANT: it stays 1.
    - COSINE: half a cosine from 1 at the end of the warm-up down to `share` at iteration `iterations`, where it stays
      (Loshchilov and Hutter, SGDR, without restarts).
    - STEP: it is multiplied by `share` at every multiple of `iterations`.

    Attributes:
        decay: the course after the warm-up.
        warm_up: iterations of the warm-up, 0 for none.
        iterations: see above; 0 for CONSTANT.
        share: see above, 0..1; 1 for CONSTANT.

    Example:
        >>> schedule = esd.Schedule(esd.Decay.STEP, warm_up=4, iterations=100, share=0.5)
        >>> [schedule.factor(iteration) for iteration in (0, 3, 50, 100, 200)]
        [0.25, 1.0, 1.0, 0.5, 0.25]
    """

    decay: Decay = Decay.CONSTANT
    warm_up: int = 0
    iterations: int = 0
    share: float = 1.0

    def __post_init__(self) -> None:
        if self.warm_up < 0:
            raise InvalidArgument(f"the warm-up is {self.warm_up} iterations, it must be at least 0")
        if max(self.warm_up, self.iterations) > _MOST_ITERATIONS:
            raise InvalidArgument(
                f"a schedule of {max(self.warm_up, self.iterations)} iterations is longer than {_MOST_ITERATIONS}"
            )
        if not 0 <= self.share <= 1:
            raise InvalidArgument(f"the share of a schedule is {self.share}, it must be in 0..1")
        if self.decay is Decay.CONSTANT:
            if self.iterations or self.share != 1:
                raise InvalidArgument("a constant schedule has neither iterations nor a share")
        elif self.iterations <= (self.warm_up if self.decay is Decay.COSINE else 0):
            raise InvalidArgument(
                f"a {self.decay.value} schedule of {self.iterations} iterations ends before it begins: give more than "
                f"the {self.warm_up} of the warm-up"
            )

    def factor(self, iteration: int) -> float:
        """Returns the factor of the learning rate of an iteration, counted from 0."""
        if iteration < self.warm_up:
            return (iteration + 1) / self.warm_up
        match self.decay:
            case Decay.CONSTANT:
                return 1.0
            case Decay.COSINE:
                passed = min(1.0, (iteration - self.warm_up) / (self.iterations - self.warm_up))
                return self.share + (1 - self.share) * (1 + _cosine(math.pi * passed)) / 2
            case Decay.STEP:
                return _power(self.share, iteration // self.iterations)

    def rates(self, learning_rate: float, steps: NDArray[np.integer]) -> NDArray[np.float32]:
        """Returns the rates of optimizer steps [r], counted from 1, at a full rate of `learning_rate`: float32 [r]."""
        if self == CONSTANT:
            return np.full(len(steps), learning_rate, np.float32)
        distinct, places = np.unique(steps, return_inverse=True)
        return np.array([learning_rate * self.factor(int(step) - 1) for step in distinct], np.float32)[places]


CONSTANT = Schedule()


@lru_cache(maxsize=16)
def _cosine(angle: float) -> float:
    """Returns the cosine of 0..pi, by its Taylor series."""
    term = total = 1.0
    for n in range(1, _TERMS + 1):
        term *= -angle * angle / ((2 * n - 1) * (2 * n))
        total += term
    return total


def _power(base: float, exponent: int) -> float:
    """Returns a power, by squaring."""
    power = 1.0
    while exponent:
        if exponent & 1:
            power *= base
        base *= base
        exponent >>= 1
    return power
