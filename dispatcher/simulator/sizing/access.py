"""How often the samples of a stream have each row: SCARS' access table (§III)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from services.domain.batches import SampleBatch
from services.domain.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class AccessTable:
    """The rows of a stream by how often they are looked up.

    Attributes:
        samples: how many samples were counted.
        counts: int64 [E], lookups of each distinct row, descending.
    """

    samples: int
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, batches: Iterable[SampleBatch]) -> AccessTable:
        """Counts a stream. Raises InvalidArgument when it is empty."""
        ids, counts, samples = np.empty(0, np.uint64), np.empty(0, np.int64), 0
        for batch in batches:
            samples += len(batch)
            ids, inverse = np.unique(np.concatenate([ids, batch.ids.reshape(-1)]), return_inverse=True)
            seen = np.bincount(inverse[len(counts) :], minlength=len(ids))
            seen[inverse[: len(counts)]] += counts
            counts = seen
        if not samples:
            raise InvalidArgument("the data has no samples to profile")
        return cls(samples, np.sort(counts)[::-1].astype(np.int64))

    @property
    def popularity(self) -> NDArray[np.float64]:
        """P(e): how likely a sample has each row, float64 [E], descending."""
        popularity: NDArray[np.float64] = np.minimum(self.counts / self.samples, 1.0)
        return popularity

    @property
    def lookups_per_sample(self) -> float:
        """Rows that a sample looks up."""
        return float(self.counts.sum()) / self.samples

    def rows_for(self, share: float) -> int:
        """Returns how many of the most popular rows make up a share, 0..1, of all lookups."""
        return int(np.searchsorted(np.cumsum(self.counts), share * self.counts.sum())) + 1
