"""A model with a buffer of every kind: a constant, sums over all samples so far, and a count of iterations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

import esd
from esd.worker.models.inputs import join
from esd.worker.models.layers import mlp


class RunningNorm(nn.Module):
    """Normalises by mean and variance of all samples before this batch, beside 100 of mean 0 and variance 1."""

    count: Tensor
    total: Tensor
    squares: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("count", torch.tensor(100))
        self.register_buffer("total", torch.zeros(width))
        self.register_buffer("squares", torch.full((width,), 100.0))

    def forward(self, inputs: Tensor) -> Tensor:
        """Returns float32 [m, width]."""
        mean = self.total / self.count
        outputs: Tensor = (inputs - mean) / (self.squares / self.count - mean.square()).sqrt()
        if self.training:
            seen = inputs.detach()
            self.count += len(seen)  # in place, or anew: both are the buffer
            self.total = self.total + seen.sum(dim=0)
            self.squares = self.squares + seen.square().sum(dim=0)
        return outputs


class Net(esd.Model):
    """An MLP over all embeddings and dense features, normalised, whose outputs become sharper with the iterations."""

    steps: Tensor
    signs: Tensor
    buffer_rules: ClassVar = {"norm.count": "sum", "norm.total": "sum", "norm.squares": "sum", "steps": "lead"}

    def __init__(self, inputs: esd.ModelInputs, hidden: tuple[int, ...]) -> None:
        super().__init__(inputs, hidden)
        self.norm = RunningNorm(inputs.width)
        self.register_buffer("steps", torch.zeros(()))
        self.register_buffer("signs", torch.randn(inputs.width).sign())
        self.deep = mlp(inputs.width, hidden, len(inputs.labels))

    def forward(self, embeddings: Mapping[str, Any], dense: Tensor) -> Tensor:
        """See esd.Model."""
        outputs: Tensor = self.deep(self.norm(join(embeddings, dense)) * self.signs) * (2 - torch.exp(-self.steps / 20))
        if self.training:
            self.steps = self.steps + 1
        return outputs
