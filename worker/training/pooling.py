"""From the rows of ids to the inputs of a model: features that have lists of ids are pooled, sample by sample."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from services.domain.features import Feature, Pooling


def pool(rows: Tensor, lengths: NDArray[np.uint16] | None, features: Sequence[Feature]) -> Tensor:
    """Adds up, or averages, the rows of each feature of each sample; differentiable, and in a fixed order.

    Args:
        rows: float32 [N, D], of all ids: sample by sample, and in each of them feature by feature.
        lengths: uint16 [m, F], how many ids each sample has of each feature; None: exactly one of each.
        features: the F features.

    Returns:
        float32 [m, F, D]; zeros where a sample has no ids of a feature. Without lengths it is a view of the rows.
    """
    if lengths is None:
        return rows.view(-1, len(features), rows.shape[1])
    counts = torch.from_numpy(lengths.astype(np.int64)).to(rows.device)
    sums = torch.segment_reduce(rows, "sum", lengths=counts.reshape(-1), unsafe=True, initial=0)
    pooled = sums.view(*counts.shape, rows.shape[1])
    means = torch.tensor([feature.pooling is Pooling.MEAN for feature in features], device=rows.device)
    return pooled / torch.where(means, counts.clamp(min=1), 1).unsqueeze(2)
