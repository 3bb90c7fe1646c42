"""Wide & Deep (Cheng et al., 2016)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from esd.worker.models.inputs import ModelInputs
from esd.worker.models.layers import draw_parameters, mlp, require_wide, split_wide
from esd.worker.models.model import Model


class WideDeep(Model):
    """The sum of a linear model over ids and dense features, and an MLP over embedding vectors and dense features.

    All labels share the first-order weights of the ids.
    """

    def __init__(self, inputs: ModelInputs, hidden: tuple[int, ...]) -> None:
        super().__init__(inputs, hidden)
        width = require_wide(inputs, "wdl")
        self.wide = nn.Parameter(torch.empty(len(inputs.labels), inputs.dense))  # without bias, which the MLP has
        self.deep = mlp(len(inputs.features) * width + inputs.dense, hidden, len(inputs.labels))
        draw_parameters(self)

    def forward(self, embeddings: Mapping[str, Any], dense: Tensor) -> Tensor:
        """See Model.forward."""
        weights, vectors = split_wide(embeddings)
        wide = weights.sum(dim=1, keepdim=True) + dense @ self.wide.T
        deep: Tensor = self.deep(torch.cat((vectors.flatten(1), dense), dim=1))
        return wide + deep
