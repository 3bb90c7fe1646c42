"""Wide & Deep (Cheng et al., 2016)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from worker.models.click_model import ClickModel, InputShape, draw_parameters, join, mlp, require_wide, split_wide


class WideDeep(ClickModel):
    """Adds a linear model over ids and dense features to an MLP over embedding vectors and dense features."""

    def __init__(self, shape: InputShape, hidden: tuple[int, ...]) -> None:
        super().__init__(shape, hidden)
        width = require_wide(shape, "wdl")
        self.wide = nn.Parameter(torch.empty(1, shape.dense_features))  # the MLP has the bias
        self.deep = mlp(shape.fields * width + shape.dense_features, hidden, 1)
        draw_parameters(self)

    def forward(self, rows: Tensor, dense: Tensor) -> Tensor:
        """See ClickModel.forward."""
        weights, vectors = split_wide(rows)
        wide = weights.sum(dim=1) + (dense @ self.wide.T).squeeze(1)
        deep: Tensor = self.deep(join(vectors, dense)).squeeze(1)
        return wide + deep
