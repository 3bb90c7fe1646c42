"""DeepFM (Guo et al., 2017)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from esd.worker.models.inputs import ModelInputs
from esd.worker.models.layers import draw_parameters, mlp, require_wide, split_wide
from esd.worker.models.model import Model


class DeepFM(Model):
    """Adds a factorisation machine to an MLP over the same embedding vectors.

    Several labels share the factorisation machine, but for the weights of the dense features.
    """

    def __init__(self, inputs: ModelInputs, hidden: tuple[int, ...]) -> None:
        super().__init__(inputs, hidden)
        width = require_wide(inputs, "dfm")
        self.linear = nn.Parameter(torch.empty(len(inputs.labels), inputs.dense))  # the MLP has the bias
        self.deep = mlp(len(inputs.features) * width + inputs.dense, hidden, len(inputs.labels))
        draw_parameters(self)

    def forward(self, embeddings: Mapping[str, Any], dense: Tensor) -> Tensor:
        """See Model.forward."""
        weights, vectors = split_wide(embeddings)
        first_order = weights.sum(dim=1, keepdim=True) + dense @ self.linear.T
        # The sum of the dot products of all pairs of fields, in linear time (Rendle, 2010, lemma 3.1).
        second_order = 0.5 * (vectors.sum(dim=1).square() - vectors.square().sum(dim=1)).sum(dim=1, keepdim=True)
        deep: Tensor = self.deep(torch.cat((vectors.flatten(1), dense), dim=1))
        return first_order + second_order + deep
