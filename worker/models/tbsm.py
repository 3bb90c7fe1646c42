"""TBSM, the time-based sequence model (Ishkhanov et al., 2020)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from esd.services.domain.errors import InvalidArgument
from esd.worker.models.inputs import InputFeature, Jagged, ModelInputs
from esd.worker.models.layers import draw_parameters, mlp, pair_products
from esd.worker.models.model import Model


class TBSM(Model):
    """DLRM with a time series layer: attention turns each list, a history, into a vector for the present.

    The target of a list is the first single-id feature of the same table, or the first one of all: items of the past
    are compared with the present item. The vectors of the lists interact with the other embeddings, and with the vector
    of the dense features, as in DLRM.
    """

    def __init__(self, inputs: ModelInputs, hidden: tuple[int, ...]) -> None:
        super().__init__(inputs, hidden)
        lists = [feature for feature in inputs.features if feature.longest]
        self.singles = [feature.name for feature in inputs.features if not feature.longest]
        dimensions = {feature.dimension for feature in inputs.features}
        if not lists or not self.singles or len(dimensions) > 1:
            raise InvalidArgument(
                f"tbsm needs a feature with pooling list, one without, and embeddings of one length; there are "
                f"{len(lists)} lists, {len(self.singles)} other features, and embeddings of {sorted(dimensions)} values"
            )
        (dimension,) = dimensions
        self.targets = {feature.name: _target_of(feature, inputs) for feature in lists}
        self.attention = nn.ModuleList(nn.Linear(dimension, dimension, bias=False) for _ in lists)
        self.bottom = mlp(inputs.dense, hidden[-1:], dimension) if inputs.dense else None
        vectors = len(inputs.features) + (self.bottom is not None)
        self.top = mlp(dimension * vectors + vectors * (vectors - 1) // 2, hidden, len(inputs.labels))
        draw_parameters(self)

    def forward(self, embeddings: Mapping[str, Any], dense: Tensor) -> Tensor:
        """See Model.forward."""
        vectors = [embeddings[name] for name in self.singles]
        for attention, (history, target) in zip(self.attention, self.targets.items(), strict=True):
            vectors.append(attend(embeddings[history], attention(embeddings[target])))
        if self.bottom is not None:
            vectors.append(self.bottom(dense).relu())
        stacked = torch.stack(vectors, dim=1)
        outputs: Tensor = self.top(torch.cat((stacked.flatten(1), pair_products(stacked)), dim=1))
        return outputs


def attend(history: Jagged, query: Tensor) -> Tensor:
    """Returns the mean of each history, weighted by the softmax of its products with the query; zeros if it is empty.

    Args:
        history: values [m, T, D].
        query: float32 [m, D].

    Returns:
        float32 [m, D].
    """
    mask = history.mask
    products = (history.values @ query.unsqueeze(2)).squeeze(2) / math.sqrt(query.shape[1])
    # Padding has a weight of exactly zero, so the result does not depend on the longest list of the batch.
    weights = products.masked_fill(~mask, torch.finfo(products.dtype).min).softmax(dim=1) * mask
    return (weights.unsqueeze(1) @ history.values).squeeze(1)


def _target_of(history: InputFeature, inputs: ModelInputs) -> str:
    singles = [feature for feature in inputs.features if not feature.longest]
    return next((feature for feature in singles if feature.table == history.table), singles[0]).name
