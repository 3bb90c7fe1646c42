"""The number of lookups of each row of a stream: SCARS' access table (§III)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.ids import table_of
from esd.services.domain.tables import TableSpec


@dataclass(frozen=True, slots=True)
class AccessTable:
    """The rows of a stream, ordered by their numbers of lookups.

    Attributes:
        samples: number of samples in the stream.
        counts: int64 [E], lookups of each distinct row, descending.
        tables: uint64 [E], the number of each row's table.
    """

    samples: int
    counts: NDArray[np.int64]
    tables: NDArray[np.uint64]

    @classmethod
    def of(cls, batches: Iterable[SampleBatch], tables: int = 1) -> AccessTable:
        """Counts the lookups of a stream of samples of `tables` tables. Raises InvalidArgument if it is empty."""
        ids, counts, samples = np.empty(0, np.uint64), np.empty(0, np.int64), 0
        for batch in batches:
            samples += len(batch)
            ids, inverse = np.unique(np.concatenate([ids, batch.ids.reshape(-1)]), return_inverse=True)
            seen = np.bincount(inverse[len(counts) :], minlength=len(ids))
            seen[inverse[: len(counts)]] += counts
            counts = seen
        if not samples:
            raise InvalidArgument("the data has no samples to profile")
        order = np.argsort(-counts, kind="stable")
        numbers = table_of(ids[order]) if tables > 1 else np.zeros(len(order), np.uint64)
        return cls(samples, counts[order].astype(np.int64), numbers.astype(np.uint64))

    @property
    def popularity(self) -> NDArray[np.float64]:
        """P(e): the probability that a sample has row e, float64 [E], descending."""
        popularity: NDArray[np.float64] = np.minimum(self.counts / self.samples, 1.0)
        return popularity

    @property
    def lookups_per_sample(self) -> float:
        """The mean number of rows that a sample looks up."""
        return float(self.counts.sum()) / self.samples

    def sizes(self, tables: Sequence[TableSpec]) -> NDArray[np.float64]:
        """Returns the room of each row in a cache, in rows of the first table, float64 [E]."""
        moved = np.array([table.row_transfer_bytes for table in tables], np.float64)
        sizes: NDArray[np.float64] = (moved / moved[0])[self.tables]
        return sizes

    def room(self, tables: Sequence[TableSpec]) -> int:
        """Returns the room of all rows together, in rows of the first table, rounded up."""
        return math.ceil(float(self.sizes(tables).sum()))

    def rows_for(self, share: float) -> int:
        """Returns the number of most popular rows that make up a share, 0..1, of all lookups."""
        return int(np.searchsorted(np.cumsum(self.counts), share * self.counts.sum())) + 1
