"""Layers and helpers that several models share."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from esd.services.domain.errors import InvalidArgument
from esd.worker.models.inputs import ModelInputs, stack


def split_wide(embeddings: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
    """Splits embeddings [m, D] into first-order weights [m, F] and embedding vectors [m, F, D - 1].

    One row serves the wide and the deep part, so an id costs one transfer, not two.
    """
    rows = stack(embeddings)
    weights, vectors = torch.split(rows, [1, rows.shape[2] - 1], dim=2)
    return weights.squeeze(2), vectors


def require_wide(inputs: ModelInputs, model: str) -> int:
    """Returns the width D - 1 of the embedding vectors. Raises InvalidArgument if D is below 2."""
    dimension = inputs.dimension(model)
    if dimension < 2:
        raise InvalidArgument(
            f"dimension is {dimension}, {model} needs at least 2: a first-order weight and an embedding vector"
        )
    return dimension - 1


def mlp(inputs: int, hidden: tuple[int, ...], outputs: int) -> nn.Sequential:
    """Returns linear layers of the given widths, with a ReLU after each except the last."""
    widths = (inputs, *hidden)
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], outputs))


def pair_products(vectors: Tensor) -> Tensor:
    """Returns the dot products [m, V (V - 1) / 2] of all pairs of V vectors [m, V, D]."""
    first, second = torch.tril_indices(vectors.shape[1], vectors.shape[1], offset=-1, device=vectors.device)
    return torch.bmm(vectors, vectors.transpose(1, 2))[:, first, second]


def draw_parameters(model: nn.Module) -> None:
    """Fills every parameter from its own generator, seeded by (seed of the default generator, parameter name).

    So the values do not depend on the order in which layers are created. Weights are uniform in +-1/sqrt(inputs),
    PyTorch's own rule for linear layers; biases, which have only one axis, start at 0.
    """
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim < 2:
                parameter.zero_()
                continue
            generator = torch.Generator().manual_seed(_parameter_seed(torch.initial_seed(), name))
            bound = 1 / math.sqrt(max(1, parameter.shape[1]))
            parameter.uniform_(-bound, bound, generator=generator)


def _parameter_seed(seed: int, name: str) -> int:
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1  # a signed 64-bit seed, not negative
