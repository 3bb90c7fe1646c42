"""The attributes that a data set takes over from its source."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from esd.data.dataset import Dataset, known_triples_of, negatives_of, table_options_of
from esd.data.schema import Schema


class DerivedDataset:
    """A `Dataset` but for `fingerprint` and iteration; it describes itself as the one that it is made of does.

    Args:
        source: the other one.
    """

    def __init__(self, source: Dataset) -> None:
        self._source = source
        self.name = source.name
        self.features = source.features
        self.labels = source.labels
        self.dense_features = source.dense_features
        self.samples = source.samples
        self.endless = source.endless
        self.negatives = negatives_of(source)
        self.table_options = table_options_of(source)

    @property
    def known(self) -> NDArray[np.uint64] | None:
        """The true triples of the source, if it is a graph."""
        return known_triples_of(self._source)

    @property
    def schema(self) -> Schema | None:
        """The description of the source's columns; None if it has none."""
        return getattr(self._source, "schema", None)

    @property
    def skipped(self) -> int:
        """How many malformed records the latest iteration of the source has skipped so far."""
        return self._source.skipped
