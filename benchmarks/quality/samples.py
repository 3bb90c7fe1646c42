"""The samples on which both sides train and are judged: samples of a real data set, in memory."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esd.data import open_data
from esd.run.stream import first_samples
from esd.services.domain.batches import SampleBatch
from esd.services.domain.features import Feature, Pooling

HELD_OUT = 16_384  # samples that follow those that are trained
HISTORY = 8

# The feature that owns a history, the listed feature, and whether only samples with the label are in it.
_HISTORIES = {"flights": ("tailnum", "dest", False), "journey": ("household", "product", True)}
DATA = tuple(_HISTORIES)


@dataclass(frozen=True, slots=True)
class Samples:
    """The samples of one comparison.

    Attributes:
        features: features of the samples. A history is the last feature, and lists earlier values of the first one.
        dense_features: names of the d dense features.
        batch: samples of an iteration.
        trained: samples in training order.
        held_out: samples by which the trained model is judged.
    """

    features: tuple[Feature, ...]
    dense_features: tuple[str, ...]
    batch: int
    trained: SampleBatch
    held_out: SampleBatch

    def batches(self) -> list[SampleBatch]:
        """Cuts the samples that are trained into global batches."""
        return _cut(self.trained, self.batch)

    def held_out_batches(self) -> list[SampleBatch]:
        """Cuts the samples that judge the model into batches of the same size."""
        return _cut(self.held_out, self.batch)


def _cut(samples: SampleBatch, size: int) -> list[SampleBatch]:
    return [samples[start : start + size] for start in range(0, len(samples), size)]


@cache
def load(data: str, batch: int, iterations: int, *, history: bool = False) -> Samples:
    """Reads the first samples of a data set, on demand with a history of each plane or household."""
    dataset, trained = open_data(data, batch, seed=0), batch * iterations
    read = list(first_samples(dataset, trained + HELD_OUT))
    features, dense_features = dataset.features, dataset.dense_features
    if history:
        of_whom, of_what, liked = _HISTORIES[data]
        names = [feature.name for feature in features]
        target = names.index(of_what)
        order = [target, *(at for at in range(len(names)) if at != target)]
        read = with_history(read, order, order.index(names.index(of_whom)), liked=liked)
        features = (*(features[at] for at in order), Feature("history", 0, Pooling.LIST, HISTORY))
    samples = SampleBatch.concatenate(read)
    return Samples(features, dense_features, batch, samples[:trained], samples[trained:])


def with_history(read: list[SampleBatch], order: list[int], owner: int, *, liked: bool) -> list[SampleBatch]:
    """Adds to every sample the latest ids of its first feature that its owner had before the sample's batch."""
    seen: defaultdict[int, deque[np.uint64]] = defaultdict(lambda: deque(maxlen=HISTORY))
    made = []
    for batch in read:
        ids = batch.by_field[:, order]
        lists: list[NDArray[Any]] = [np.array(seen[int(row[owner])], np.uint64) for row in ids]
        lengths = np.ones((len(batch), len(order) + 1), np.uint32)
        lengths[:, -1] = [len(each) for each in lists]
        joined = np.concatenate([part for row, each in zip(ids, lists, strict=True) for part in (row, each)])
        made.append(replace(batch, ids=joined, lengths=lengths))
        for row, label in zip(ids, batch.labels[:, 0], strict=True):
            if label or not liked:
                seen[int(row[owner])].append(row[0])
    return made
