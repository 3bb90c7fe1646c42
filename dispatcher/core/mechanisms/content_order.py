"""Samples in an order that depends on what they contain, not on where they stand in the batch."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dispatcher.core.mechanisms.draws import draws


def content_order(ids: NDArray[np.uint64]) -> NDArray[np.int64]:
    """The samples of a batch, uint64 [k, F], by a hash of their ids: int64 [k]. Equal samples keep their order.

    A mechanism that takes samples in this order permutes its answer when the batch is permuted.
    """
    return np.argsort(ids @ _multipliers(ids.shape[1]), kind="stable")


@lru_cache
def _multipliers(fields: int) -> NDArray[np.uint64]:
    """Odd, so that no bit of an id is lost."""
    return draws(0, 0, fields) | np.uint64(1)
