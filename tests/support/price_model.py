"""A model that makes no number of a price of 0, and one whose outputs have a wrong shape."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

import esd


class PerPrice(esd.Model):
    """Logits with the reciprocal of the first dense feature."""

    def __init__(self, inputs: esd.ModelInputs, hidden: tuple[int, ...]) -> None:
        super().__init__(inputs, hidden)
        self.output = nn.Linear(inputs.width, len(inputs.labels))

    def forward(self, embeddings: Mapping[str, Tensor], dense: Tensor) -> Tensor:
        """See esd.Model."""
        logits: Tensor = self.output(torch.cat((*embeddings.values(), dense), dim=1)) + 0.1 / dense[:, :1]
        return logits


class TwoLogits(PerPrice):
    """Two logits for one label."""

    def forward(self, embeddings: Mapping[str, Tensor], dense: Tensor) -> Tensor:
        """See esd.Model."""
        return super().forward(embeddings, dense).repeat(1, 2)
