"""A part of a data set: some samples in a row, such as all but the last tenth, or that tenth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from esd.data.dataset import Dataset
from esd.data.derived import DerivedDataset
from esd.services.domain.batches import SampleBatch


class Part(DerivedDataset):
    """A `Dataset` of the samples `first` to `last - 1` of another one.

    The samples before them are read, too, and dropped.
    """

    def __init__(self, dataset: Dataset, first: int, last: int) -> None:
        super().__init__(dataset)
        self._first = first
        self._last = last
        self.samples = last - first
        self.endless = False

    @property
    def fingerprint(self) -> str:
        """Names the data set and the part."""
        return f"{self._source.fingerprint}; samples {self._first} to {self._last - 1}"

    def __iter__(self) -> Iterator[SampleBatch]:
        """Reads the part, in batches of at most the data set's."""
        position = 0
        for batch in self._source:
            part = batch[max(0, self._first - position) : self._last - position]
            if len(part):
                yield replace(part, source=None)  # the place of a sample says not how many of the part precede it
            position += len(batch)
            if position >= self._last:
                return
