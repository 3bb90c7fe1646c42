"""What every reader offers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from services.domain.batches import SampleBatch

# Part of every fingerprint. Raise it when a reader makes other ids, labels or features of the same input.
READER_VERSION = 1


class Dataset(Protocol):
    """A stream of samples, in training order. Every iteration starts again and yields the same samples.

    Memory stays bounded however long the stream is. Iteration raises InvalidArgument on a malformed record,
    naming file, line and column.
    """

    @property
    def name(self) -> str:
        """Name of the reader: flights, criteo, avazu, criteo-search, movielens, synthetic:criteo, ..."""
        ...

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the F categorical fields: the columns of SampleBatch.ids."""
        ...

    @property
    def dense_features(self) -> tuple[str, ...]:
        """Names of the d dense features: the columns of SampleBatch.dense; may be empty."""
        ...

    @property
    def samples(self) -> int | None:
        """Samples of the whole stream; None: not known before it was read, or the stream is endless."""
        ...

    @property
    def endless(self) -> bool:
        """Whether iteration never stops."""
        ...

    @property
    def skipped(self) -> int:
        """Malformed records that the latest iteration has skipped so far."""
        ...

    @property
    def fingerprint(self) -> str:
        """Equal fingerprints: equal samples. Names source, content (size and time of a file) and reader version."""
        ...

    def __iter__(self) -> Iterator[SampleBatch]:
        """Yields batches of 1 to `batch_size` samples."""
        ...
