"""A model of one's own. docs/models.md explains it."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

import esd


class Net(esd.Model):
    """An MLP over all embeddings and dense features, with layer norm and dropout."""

    def __init__(self, inputs: esd.ModelInputs, hidden: tuple[int, ...]) -> None:
        super().__init__(inputs, hidden)
        self.layers = nn.Sequential(
            nn.LayerNorm(inputs.width), nn.Linear(inputs.width, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1)
        )

    def forward(self, embeddings: Mapping[str, Tensor], dense: Tensor) -> Tensor:
        """Returns logits."""
        logits: Tensor = self.layers(torch.cat((*embeddings.values(), dense), dim=1))
        return logits
