"""Batches of samples, read and compared."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

import numpy as np

from esd.services.domain.batches import SampleBatch


def taken(batches: Iterator[SampleBatch], samples: int) -> list[SampleBatch]:
    """As many batches as have this many samples."""
    found: list[SampleBatch] = []
    while sum(map(len, found)) < samples:
        found.append(next(batches))
    return found


def beginning_at(sample: int, batches: list[SampleBatch]) -> SampleBatch:
    """The batch whose first sample is this one; logs give batches as messages arrive, so their number may differ."""
    return dict(zip(accumulate(map(len, batches), initial=0), batches, strict=False))[sample]


def assert_same_samples(found: SampleBatch, expected: SampleBatch) -> None:
    for name in ("ids", "dense", "labels", "lengths"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), name)
