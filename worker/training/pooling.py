"""From the rows of ids to the inputs of a model: lists of ids are pooled sample by sample, or come as sequences."""

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
    rows: Tensor, lengths: NDArray[np.uint16] | None, features: Sequence[Feature]
) -> Mapping[str, Tensor | Jagged]:
    """Makes what a model gets of the rows of m samples; differentiable, and in a fixed order.

    Args:
        rows: float32 [N, D], of all ids: sample by sample, and in each of them feature by feature.
        lengths: uint16 [m, F], how many ids each sample has of each feature; None: exactly one of each.
        features: the F features.

    Returns:
        By name: float32 [m, D] of each feature, or the sequences of one that is not pooled.
    """
    names = tuple(feature.name for feature in features)
    stacked = rows.view(-1, len(features), rows.shape[1]) if lengths is None else _pooled(rows, lengths, features)
    if all(feature.pooling is not Pooling.LIST for feature in features):
        return StackedEmbeddings(names, stacked)
    if lengths is None:
        lengths = np.ones(stacked.shape[:2], np.uint16)
    embeddings: dict[str, Tensor | Jagged] = dict(zip(names, stacked.unbind(1), strict=True))
    for field, feature in enumerate(features):
        if feature.pooling is Pooling.LIST:
            embeddings[feature.name] = _sequences(rows, lengths, field)
    return embeddings


def _pooled(rows: Tensor, lengths: NDArray[np.uint16], features: Sequence[Feature]) -> Tensor:
    """Adds up, or averages, the rows of each feature of each sample: [m, F, D]; zeros where there are none."""
    counts = torch.from_numpy(lengths.astype(np.int64)).to(rows.device)
    sums = torch.segment_reduce(rows, "sum", lengths=counts.reshape(-1), unsafe=True, initial=0)
    means = torch.tensor([feature.pooling is Pooling.MEAN for feature in features], device=rows.device)
    pooled: Tensor = sums.view(*counts.shape, rows.shape[1]) / torch.where(means, counts.clamp(min=1), 1).unsqueeze(2)
    return pooled


def _sequences(rows: Tensor, lengths: NDArray[np.uint16], field: int) -> Jagged:
    ends = np.cumsum(lengths.reshape(-1), dtype=np.int64).reshape(lengths.shape)[:, field]
    counts = lengths[:, field].astype(np.int64)
    places = np.arange(max(1, counts.max(initial=0)))
    nothing = len(rows)  # the row of zeros, behind all others
    which = np.where(places < counts[:, None], (ends - counts)[:, None] + places, nothing)
    padded = torch.cat((rows, rows.new_zeros(1, rows.shape[1])))
    values = functional.embedding(torch.from_numpy(which).to(rows.device), padded, padding_idx=nothing)
    return Jagged(values, torch.from_numpy(counts).to(rows.device))
