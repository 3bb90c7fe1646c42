"""A data set: a stream of samples that can be read again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from esd.data.schema import TableOptions
from esd.services.domain.batches import SampleBatch
from esd.services.domain.columns import SampleColumns
from esd.services.domain.features import Feature
from esd.services.domain.negatives import Negatives


class Dataset(Protocol):
    """A stream of samples, in training order. Every iteration starts again and yields the same samples.

    Two iterations may go on at a time, in two threads: one trains while the other is judged by.

    Memory stays bounded however long the stream is. Iteration raises InvalidArgument on a malformed record,
    naming file, line and column.
    """

    @property
    def name(self) -> str:
        """Name of the reader: flights, criteo, avazu, criteo-search, movielens, synthetic:criteo, ..."""
        ...

    @property
    def features(self) -> tuple[Feature, ...]:
        """The F features of ids, in the order in which SampleBatch has their ids."""
        ...

    @property
    def dense_features(self) -> tuple[str, ...]:
        """Names of the d dense features, the columns of SampleBatch.dense, with transforms: `ln(1 + price)`."""
        ...

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the L labels: the columns of SampleBatch.labels."""
        ...

    @property
    def samples(self) -> int | None:
        """Samples of the whole stream; None when that is unknown before it is read, or when the stream is endless."""
        ...

    @property
    def endless(self) -> bool:
        """Whether the stream has no end."""
        ...

    @property
    def skipped(self) -> int:
        """How many malformed records the latest iteration has skipped so far."""
        ...

    @property
    def fingerprint(self) -> str:
        """Names source, content and reader version, at most 1,000 characters; equal ones mean equal samples."""
        ...

    def __iter__(self) -> Iterator[SampleBatch]:
        """Yields batches of 1 to `batch_size` samples."""
        ...


def negatives_of(dataset: Dataset) -> Negatives | None:
    """Returns the negatives that a data set asks for, by an attribute `negatives`; None if it has none."""
    negatives: Negatives | None = getattr(dataset, "negatives", None)
    return negatives


def table_options_of(dataset: Dataset) -> Mapping[str, TableOptions]:
    """Returns the options of the tables of a data set, by an attribute `table_options`; none if it has none.

    The keys are the names of the tables' first features, and an empty text for table 0.
    """
    options: Mapping[str, TableOptions] = getattr(dataset, "table_options", {})
    return options


def known_triples_of(dataset: object) -> NDArray[np.uint64] | None:
    """Returns the ids of all true triples of a graph, uint64 [n, 3], by an attribute `known`; None if it has none.

    A corrupted triple that is among them does not count when held-out triples are ranked.
    """
    known: NDArray[np.uint64] | None = getattr(dataset, "known", None)
    return known


def columns_of(dataset: Dataset) -> SampleColumns:
    """Returns the columns of a data set's samples, by which batches are matched to jobs and models."""
    return SampleColumns(dataset.features, dataset.labels, tuple(dataset.dense_features))
