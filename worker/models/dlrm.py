"""DLRM (Naumov et al., 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from esd.worker.models.inputs import ModelInputs, stack
from esd.worker.models.layers import draw_parameters, mlp, pair_products
from esd.worker.models.model import Model


class DLRM(Model):
    """Interaction by dot products of all pairs of vectors: the embeddings, and one vector of the dense features.

    A bottom MLP computes the vector of the dense features. It has one hidden layer, as wide as the last of `hidden`;
    the top MLP has the layers `hidden`.
    """

    def __init__(self, inputs: ModelInputs, hidden: tuple[int, ...]) -> None:
        super().__init__(inputs, hidden)
        dimension = inputs.dimension("dlrm")
        has_dense = inputs.dense > 0
        self.bottom = mlp(inputs.dense, hidden[-1:], dimension) if has_dense else None
        vectors = len(inputs.features) + has_dense
        pairs = vectors * (vectors - 1) // 2
        self.top = mlp(pairs + has_dense * dimension, hidden, len(inputs.labels))
        draw_parameters(self)

    def forward(self, embeddings: Mapping[str, Any], dense: Tensor) -> Tensor:
        """See Model.forward."""
        rows = stack(embeddings)
        if self.bottom is None:
            interactions = pair_products(rows)
        else:
            bottom = self.bottom(dense).relu()
            products = pair_products(torch.cat((bottom.unsqueeze(1), rows), dim=1))
            interactions = torch.cat((bottom, products), dim=1)
        logits: Tensor = self.top(interactions)
        return logits
