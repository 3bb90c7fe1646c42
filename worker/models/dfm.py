"""DeepFM (Guo et al., 2017)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from worker.models.click_model import ClickModel, InputShape, draw_parameters, join, mlp, require_wide, split_wide


class DeepFM(ClickModel):
    """Adds a factorisation machine to an MLP over the same embedding vectors."""

    def __init__(self, shape: InputShape, hidden: tuple[int, ...]) -> None:
        super().__init__(shape, hidden)
        width = require_wide(shape, "dfm")
        self.linear = nn.Parameter(torch.empty(1, shape.dense_features))  # the MLP has the bias
        self.deep = mlp(shape.fields * width + shape.dense_features, hidden, 1)
        draw_parameters(self)

    def forward(self, rows: Tensor, dense: Tensor) -> Tensor:
        """See ClickModel.forward."""
        weights, vectors = split_wide(rows)
        first_order = weights.sum(dim=1) + (dense @ self.linear.T).squeeze(1)
        # The sum of the dot products of all pairs of fields, in linear time (Rendle, 2010, lemma 3.1).
        second_order = 0.5 * (vectors.sum(dim=1).square() - vectors.square().sum(dim=1)).sum(dim=1)
        deep: Tensor = self.deep(join(vectors, dense)).squeeze(1)
        return first_order + second_order + deep
