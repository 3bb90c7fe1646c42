"""Multi-gate mixture of experts (Ma et al., 2018)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from esd.worker.models.inputs import ModelInputs, join
from esd.worker.models.layers import draw_parameters, mlp
from esd.worker.models.model import Model

EXPERTS = 4


class MMoE(Model):
    """Experts that all labels share; each label weighs them by its own gate, and has its own tower on top.

    An expert is an MLP with the layers `hidden`; a tower has one hidden layer, as wide as the last of them.
    """

    def __init__(self, inputs: ModelInputs, hidden: tuple[int, ...]) -> None:
        super().__init__(inputs, hidden)
        layers = hidden or (inputs.width,)
        self.experts = nn.ModuleList(mlp(inputs.width, layers[:-1], layers[-1]) for _ in range(EXPERTS))
        self.gates = nn.ModuleList(nn.Linear(inputs.width, EXPERTS, bias=False) for _ in inputs.labels)
        self.towers = nn.ModuleList(mlp(layers[-1], layers[-1:], 1) for _ in inputs.labels)
        draw_parameters(self)

    def forward(self, embeddings: Mapping[str, Any], dense: Tensor) -> Tensor:
        """See Model.forward; the sums follow Ma et al., eq. 5 to 7."""
        shared = join(embeddings, dense)
        experts = torch.stack([expert(shared).relu() for expert in self.experts], dim=1)
        outputs = []
        for gate, tower in zip(self.gates, self.towers, strict=True):
            mixed = (gate(shared).softmax(dim=1).unsqueeze(2) * experts).sum(dim=1)
            outputs.append(tower(mixed))
        return torch.cat(outputs, dim=1)
