"""SCARS' theory of coalescing and cache size (SCARS §II, eq. 1-13)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from esd.services.domain.errors import InvalidArgument


def expected_distinct(probabilities: NDArray[np.float64], batch: float) -> float:
    """Returns the expected number of distinct rows among `batch` samples (eq. 2).

    Args:
        probabilities: float64 [E], the probability that a sample has each row, 0..1; independent across samples.
        batch: number of samples, not negative.
    """
    with np.errstate(divide="ignore"):  # a row of probability 1: log 0 is -inf, and exp of it 0
        return float(-np.expm1(batch * np.log1p(-probabilities)).sum())


@dataclass(frozen=True, slots=True)
class Device:
    """The memory of a device, in parameters.

    Attributes:
        memory: M, the parameters that fit the device.
        per_sample: a, the parameters that training needs per sample of the batch.
        per_row: d, the parameters of one row.
    """

    memory: float
    per_sample: float
    per_row: float

    def batch(self, cached: int) -> float:
        """Returns the number of samples that fit in addition to `cached` rows (eq. 7); it may be negative."""
        return (self.memory - cached * self.per_row) / self.per_sample


def epoch_communication(
    probabilities: NDArray[np.float64], device: Device, cached: int, samples: int, *, lookups: int = 1
) -> float:
    """Returns the parameters that an epoch moves if the `cached` most popular rows are cached (eq. 6 and 7).

    Args:
        probabilities: float64 [E], descending.
        device: the device, whose memory limits the batch size.
        cached: |C|, the number of cached rows.
        samples: Q, the number of samples of an epoch.
        lookups: indices per sample; the paper writes its equations for one feature.

    Returns:
        Q lookups + Q / b * (expected distinct uncached rows) * d; infinite when no whole sample fits.
    """
    batch = device.batch(cached)
    if batch < 1:
        return float("inf")
    return samples * lookups + samples / batch * expected_distinct(probabilities[cached:], batch) * device.per_row


def best_cache(probabilities: NDArray[np.float64], device: Device, samples: int, *, lookups: int = 1) -> int:
    """Returns the |C| of least communication, by binary search for the last row that pays (eq. 8-13).

    It takes O(log E) evaluations. The result is the optimum if one more cached row helps up to some size and hurts
    beyond it, as for decreasing probabilities.

    Raises:
        InvalidArgument: the device has no memory for a single sample.
    """
    if device.batch(0) < 1:
        raise InvalidArgument(f"a sample takes {device.per_sample:g} parameters, the device has {device.memory:g}")

    def cost(cached: int) -> float:
        return epoch_communication(probabilities, device, cached, samples, lookups=lookups)

    low, high = 0, min(len(probabilities), int((device.memory - device.per_sample) / device.per_row))
    while low < high:
        middle = (low + high) // 2
        if cost(middle + 1) < cost(middle):
            low = middle + 1
        else:
            high = middle
    return low
