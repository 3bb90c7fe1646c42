"""Reproducible random numbers and an order of samples, as pure functions without state or library dependence.

A draw depends on (seed, iteration, position) alone, so that replaying an iteration needs no history. The order of
samples depends on their content and not on their positions in the batch.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from esd.services.domain.batches import SampleBatch
from esd.services.domain.ids import GOLDEN, mix64, sequence

_MASK = 2**64 - 1


def draws(seed: int, iteration: int, count: int) -> NDArray[np.uint64]:
    """Returns `count` distinct uniform draws for one iteration, uint64 [count]: splitmix64 from a mixed start."""
    return sequence(start_of(seed, iteration), 1, count)


def first_draw(seed: int, iteration: int) -> int:
    """Returns the first element of `draws`, much faster than through an array with one element."""
    return _mix((start_of(seed, iteration) + GOLDEN) & _MASK)


def start_of(seed: int, iteration: int) -> int:
    """Returns the start of one iteration's sequence, in 0..2^64-1."""
    return _mix(_mix((seed + GOLDEN) & _MASK) ^ _mix((iteration + 1) * GOLDEN & _MASK))


def _mix(x: int) -> int:
    """Returns mix64 of one number, much faster than for an array with one element."""
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & _MASK
    return x ^ x >> 31


def content_order(batch: SampleBatch) -> NDArray[np.int64]:
    """Orders the samples of a batch by a hash of their ids: int64 [k]. Equal samples keep their order.

    With this order, a mechanism's assignment of a sample does not depend on the order of the batch.
    """
    if batch.lengths is None:
        return np.argsort(batch.by_field @ _multipliers(batch.fields), kind="stable")
    begins = batch.begins
    counts = np.diff(begins)
    places = np.arange(len(batch.ids)) - np.repeat(begins[:-1], counts)  # of each id in its sample
    sums = np.zeros(len(batch.ids) + 1, np.uint64)
    np.cumsum(batch.ids * _multipliers(int(counts.max(initial=0)))[places], out=sums[1:])
    lengths = batch.lengths.astype(np.uint64) @ mix64(_multipliers(batch.fields))
    return np.argsort(sums[begins[1:]] - sums[begins[:-1]] + lengths, kind="stable")


@lru_cache
def _multipliers(count: int) -> NDArray[np.uint64]:
    """Returns a factor for each id of a sample, uint64 [count]; factors are odd, so that no bit of an id is lost."""
    return draws(0, 0, count) | np.uint64(1)
