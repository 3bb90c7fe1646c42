"""The inputs of an exported model from the rows of ids: in numpy, as a worker makes them in torch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from esd.services.domain.batches import SampleBatch
from esd.services.domain.features import Feature, Pooling
from esd.services.wire.trained_models import DENSE, input_names

Inputs = dict[str, NDArray[np.float32] | NDArray[np.int64]]


def model_inputs(batch: SampleBatch, features: Sequence[Feature], rows: Sequence[NDArray[np.float32]]) -> Inputs:
    """Returns the inputs of m samples by name.

    Args:
        batch: the samples, with the columns of the model in its order.
        features: the F features.
        rows: by table, float32 [N_t, D_t], the rows of all ids of its features: by sample, and within a sample by
            feature.
    """
    lengths = (
        np.ones((len(batch), len(features)), np.int64) if batch.lengths is None else batch.lengths.astype(np.int64)
    )
    found: dict[str, Inputs] = {}
    for table, of_table in enumerate(rows):
        numbers = [at for at, feature in enumerate(features) if feature.table == table]
        counts = lengths[:, numbers]
        begins = (np.cumsum(counts.reshape(-1)) - counts.reshape(-1)).reshape(counts.shape)
        for column, at in enumerate(numbers):
            found[features[at].name] = _of_feature(features[at], of_table, begins[:, column], counts[:, column])
    inputs: Inputs = {}
    for feature in features:
        inputs |= found[feature.name]
    return inputs | {DENSE: np.ascontiguousarray(batch.dense, np.float32)}


def _of_feature(
    feature: Feature, rows: NDArray[np.float32], begins: NDArray[np.int64], counts: NDArray[np.int64]
) -> Inputs:
    names = input_names(feature)
    match feature.pooling:
        case Pooling.ONE:
            return {names[0]: rows[begins]}
        case Pooling.LIST:
            return dict(zip(names, (_sequences(rows, begins, counts), counts), strict=True))
    pooled = _sums(rows, begins, counts)
    if feature.pooling is Pooling.MEAN:
        pooled /= np.maximum(counts, 1).astype(np.float32)[:, None]
    return {names[0]: pooled}


def _sums(rows: NDArray[np.float32], begins: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.float32]:
    """Returns the sums of the rows of each sample, float32 [m, D]; zeros without rows."""
    sums = np.zeros((len(counts), rows.shape[1]), np.float32)
    some = np.flatnonzero(counts)
    if len(some):
        own = _positions(begins[some], counts[some])
        ends = np.cumsum(counts[some])
        sums[some] = np.add.reduceat(rows[own], ends - counts[some])
    return sums


def _sequences(rows: NDArray[np.float32], begins: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.float32]:
    """Returns the rows of each sample one by one, float32 [m, T, D], T at least 1; zeros after a sequence's end."""
    longest = max(1, int(counts.max(initial=0)))
    values = np.zeros((len(counts), longest, rows.shape[1]), np.float32)
    values[np.arange(longest) < counts[:, None]] = rows[_positions(begins, counts)]
    return values


def _positions(begins: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the positions of all rows of samples whose rows stand at `begins`, sample by sample."""
    steps = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    positions: NDArray[np.int64] = np.repeat(begins, counts) + steps
    return positions
