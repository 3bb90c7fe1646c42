"""The layer all models share."""

from __future__ import annotations

from itertools import pairwise

from torch import nn


def mlp(inputs: int, hidden: tuple[int, ...], outputs: int) -> nn.Sequential:
    """Linear layers of the given widths with a ReLU after each but the last."""
    widths = (inputs, *hidden)
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], outputs))
