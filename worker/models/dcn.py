"""Deep & Cross Network (Wang et al., 2017)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from esd.worker.models.inputs import ModelInputs, join
from esd.worker.models.layers import draw_parameters, mlp
from esd.worker.models.model import Model

CROSS_LAYERS = 3


class DeepCross(Model):
    """Explicit feature crosses of bounded degree, in parallel with an MLP; one output layer combines both."""

    def __init__(self, inputs: ModelInputs, hidden: tuple[int, ...]) -> None:
        super().__init__(inputs, hidden)
        width = inputs.width
        self.crosses = nn.ModuleList(Cross(width) for _ in range(CROSS_LAYERS))
        # The output layer takes the MLP's last hidden layer together with the crosses.
        self.deep = mlp(width, hidden[:-1], hidden[-1]) if hidden else None
        self.output = nn.Linear(width + sum(hidden[-1:]), len(inputs.labels))
        draw_parameters(self)

    def forward(self, embeddings: Mapping[str, Any], dense: Tensor) -> Tensor:
        """See Model.forward."""
        inputs = join(embeddings, dense)
        crossed = inputs
        for cross in self.crosses:
            crossed = cross(inputs, crossed)
        parts = (crossed,) if self.deep is None else (crossed, self.deep(inputs).relu())
        logits: Tensor = self.output(torch.cat(parts, dim=1))
        return logits


class Cross(nn.Module):
    """One cross: x_{l+1} = x_0 (x_l . w) + b + x_l (Wang et al., eq. 3)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(1, width))
        self.bias = nn.Parameter(torch.empty(width))

    def forward(self, inputs: Tensor, crossed: Tensor) -> Tensor:
        """Returns the next cross [m, width] of x_0 `inputs` and x_l `crossed`."""
        return torch.addcmul(self.bias + crossed, inputs, crossed @ self.weight.T)
