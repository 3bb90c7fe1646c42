"""A data set that is read several times, each time in another order.

The order is a function of the seed, the epoch and the samples' places in the data set, and of no library's random
numbers: every reader reads the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from esd.data.dataset import Dataset
from esd.data.derived import DerivedDataset
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.ids import mix64, sequence


class Epochs(DerivedDataset):
    """A `Dataset` of all samples of another one, `epochs` times, shuffled within each.

    Shuffling goes through a buffer: when `shuffle` samples are read, a random half of them is given, and the next ones
    are read into its place. So memory is bounded, a sample is copied twice on average, and it comes earlier than it
    stands by fewer than `shuffle` samples, and usually by no more later.

    Args:
        dataset: is read from the beginning in every epoch.
        epochs: at least 1.
        shuffle: samples of the buffer; 0: the order stays.
        seed: of the order.
        batch_size: samples of a yielded batch, at most, if they are shuffled.

    Raises:
        InvalidArgument: an endless data set is to be read twice, or a number is out of range.
    """

    def __init__(self, dataset: Dataset, *, epochs: int, shuffle: int, seed: int, batch_size: int) -> None:
        if epochs < 1 or shuffle < 0:
            raise InvalidArgument(f"epochs is {epochs} and shuffle {shuffle}; they must be at least 1 and 0")
        if dataset.endless and epochs > 1:
            raise InvalidArgument(f"{dataset.name} is endless: it has no second epoch (--epochs)")
        super().__init__(dataset)
        self._epochs = epochs
        self._shuffle = shuffle
        self._seed = seed
        self._batch_size = batch_size
        self.samples = None if dataset.samples is None else epochs * dataset.samples

    @property
    def fingerprint(self) -> str:
        """Names the data set and its order."""
        order = f"; {self._epochs} epochs" if self._epochs > 1 else ""
        if self._shuffle:
            order += f"; shuffled through {self._shuffle} by seed {self._seed}"
        return self._source.fingerprint + order

    def __iter__(self) -> Iterator[SampleBatch]:
        """Reads all epochs."""
        for epoch in range(self._epochs):
            for batch in self._shuffled(epoch) if self._shuffle else self._source:
                yield replace(batch, source=None)  # a place in one epoch says nothing of the others

    def _shuffled(self, epoch: int) -> Iterator[SampleBatch]:
        chance = _Chance(self._seed, epoch)
        given = max(1, self._shuffle // 2)
        buffer: list[SampleBatch] = []
        held = 0
        for batch in self._source:
            at = 0
            while at < len(batch):
                part = batch[at : at + self._shuffle - held]
                buffer.append(part)
                at, held = at + len(part), held + len(part)
                if held == self._shuffle:  # whatever the lengths of batches, so that the order is not theirs
                    joined, order = SampleBatch.concatenate(buffer), chance.order(held)
                    yield from self._pieces(joined, order[:given])
                    buffer, held = [joined[order[given:]]], held - given
        if held:
            yield from self._pieces(SampleBatch.concatenate(buffer), chance.order(held))

    def _pieces(self, samples: SampleBatch, order: NDArray[np.int64]) -> Iterator[SampleBatch]:
        for start in range(0, len(order), self._batch_size):
            yield samples[order[start : start + self._batch_size]]


class _Chance:
    """Random orders, one after the other."""

    def __init__(self, seed: int, epoch: int) -> None:
        self._start = sequence(mix64(np.array([seed % 2**64], np.uint64))[0], epoch + 1, 1)[0]
        self._drawn = 0

    def order(self, count: int) -> NDArray[np.int64]:
        """Returns a permutation of 0..count-1."""
        keys = sequence(self._start, self._drawn, count)
        self._drawn += count
        return np.argsort(keys, kind="stable")
