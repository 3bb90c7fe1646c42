"""Makes the inputs of a model from the rows of ids: lists of ids are pooled per sample, or kept as sequences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from esd.services.domain.features import Feature, Pooling
from esd.worker.models.inputs import Jagged, StackedEmbeddings


def embed(
    rows: Tensor, lengths: NDArray[np.uint32] | None, features: Sequence[Feature]
) -> Mapping[str, Tensor | Jagged]:
    """Makes the embeddings of m samples from their rows; differentiable, and with a fixed order of summation.

    Args:
        rows: float32 [N, D], the rows of all ids: by sample, and within a sample by feature.
        lengths: uint32 [m, F], number of ids of each feature in each sample; None: exactly one of each.
        features: the F features.

    Returns:
        By name: float32 [m, D] of each pooled feature, or the sequences of a feature with pooling LIST.
    """
    names = tuple(feature.name for feature in features)
    of_samples = (len(rows) // len(features), len(features), rows.shape[1])
    stacked = rows.view(of_samples) if lengths is None else _pooled(rows, lengths, features)
    if all(feature.pooling is not Pooling.LIST for feature in features):
        return StackedEmbeddings(names, stacked)
    if lengths is None:
        lengths = np.ones(stacked.shape[:2], np.uint32)
    embeddings: dict[str, Tensor | Jagged] = dict(zip(names, stacked.unbind(1), strict=True))
    for field, feature in enumerate(features):
        if feature.pooling is Pooling.LIST:
            embeddings[feature.name] = _sequences(rows, lengths, field)
    return embeddings


def _pooled(rows: Tensor, lengths: NDArray[np.uint32], features: Sequence[Feature]) -> Tensor:
    """Sums, or averages, the rows of each feature of each sample: [m, F, D]; zeros without rows."""
    counts = torch.from_numpy(lengths.astype(np.int64)).to(rows.device)
    sums = torch.segment_reduce(rows, "sum", lengths=counts.reshape(-1), unsafe=True, initial=0)
    means = torch.tensor([feature.pooling is Pooling.MEAN for feature in features], device=rows.device)
    pooled: Tensor = sums.view(*counts.shape, rows.shape[1]) / torch.where(means, counts.clamp(min=1), 1).unsqueeze(2)
    return pooled


def _sequences(rows: Tensor, lengths: NDArray[np.uint32], field: int) -> Jagged:
    ends = np.cumsum(lengths.reshape(-1), dtype=np.int64).reshape(lengths.shape)[:, field]
    counts = lengths[:, field].astype(np.int64)
    places = np.arange(max(1, counts.max(initial=0)))
    nothing = len(rows)  # index of a row of zeros, appended after all others
    which = np.where(places < counts[:, None], (ends - counts)[:, None] + places, nothing)
    padded = torch.cat((rows, rows.new_zeros(1, rows.shape[1])))
    values = functional.embedding(torch.from_numpy(which).to(rows.device), padded, padding_idx=nothing)
    return Jagged(values, torch.from_numpy(counts).to(rows.device))
