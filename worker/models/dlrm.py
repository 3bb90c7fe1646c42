"""DLRM (Naumov et al., 2019)."""

from __future__ import annotations

import torch
from torch import Tensor

from worker.models.click_model import ClickModel, InputShape, draw_parameters, mlp


class DLRM(ClickModel):
    """Takes dot products of all pairs of vectors: those of the id fields, and one made of the dense features.

    A bottom MLP makes that one. It has one hidden layer, as wide as the last of `hidden`; the top MLP has all of
    `hidden`.
    """

    def __init__(self, shape: InputShape, hidden: tuple[int, ...]) -> None:
        super().__init__(shape, hidden)
        has_dense = shape.dense_features > 0
        self.bottom = mlp(shape.dense_features, hidden[-1:], shape.dimension) if has_dense else None
        vectors = shape.fields + has_dense
        pairs = vectors * (vectors - 1) // 2
        self.top = mlp(pairs + has_dense * shape.dimension, hidden, 1)
        draw_parameters(self)

    def forward(self, rows: Tensor, dense: Tensor) -> Tensor:
        """See ClickModel.forward."""
        if self.bottom is None:
            interactions = pair_products(rows)
        else:
            bottom = self.bottom(dense).relu()
            products = pair_products(torch.cat((bottom.unsqueeze(1), rows), dim=1))
            interactions = torch.cat((bottom, products), dim=1)
        logits: Tensor = self.top(interactions).squeeze(1)
        return logits


def pair_products(vectors: Tensor) -> Tensor:
    """Returns the dot products [m, V (V - 1) / 2] of all pairs of V vectors [m, V, D]."""
    first, second = torch.tril_indices(vectors.shape[1], vectors.shape[1], offset=-1, device=vectors.device)
    return torch.bmm(vectors, vectors.transpose(1, 2))[:, first, second]
