"""What every click-through model takes and gives, and the pieces that several of them share."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from services.domain.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class InputShape:
    """The shape of a sample.

    Attributes:
        fields: F, id fields; each brings one embedding row.
        dimension: D, values of a row.
        dense_features: d.
    """

    fields: int
    dimension: int
    dense_features: int


class ClickModel(nn.Module, ABC):
    """Makes one logit per sample of its embedding rows and dense features.

    The rows come from the worker's cache, so a model has no embedding table of its own; `parameters()` are the dense
    parameters, which are the same on every worker. A model initialises itself; what it draws comes from torch's default
    generator (`build_model`). Its buffers are constants, saved and exported with the parameters.

    Args:
        shape: of the input.
        hidden: widths of the MLP's hidden layers.
    """

    def __init__(self, shape: InputShape, hidden: tuple[int, ...]) -> None:
        super().__init__()
        self.shape = shape
        self.hidden = hidden

    @abstractmethod
    def forward(self, rows: Tensor, dense: Tensor) -> Tensor:
        """Returns the logits of m samples.

        Args:
            rows: float32 [m, F, D], the embedding row of each field.
            dense: float32 [m, d].

        Returns:
            float32 [m].
        """


def split_wide(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Splits rows [m, F, D] into first-order weights [m, F] and embedding vectors [m, F, D - 1].

    A row that carries both serves the wide and the deep part, and an id costs one transfer, not two.
    """
    return rows[:, :, 0], rows[:, :, 1:]


def require_wide(shape: InputShape, model: str) -> int:
    """Returns the width D - 1 of the embedding vectors. Raises InvalidArgument when no column is left for them."""
    if shape.dimension < 2:
        raise InvalidArgument(
            f"dimension is {shape.dimension}, {model} needs at least 2: a first-order weight and an embedding vector"
        )
    return shape.dimension - 1


def join(rows: Tensor, dense: Tensor) -> Tensor:
    """Returns the MLP's input [m, F * D + d]: all rows of a sample side by side, then its dense features."""
    return torch.cat((rows.flatten(1), dense), dim=1)


def mlp(inputs: int, hidden: tuple[int, ...], outputs: int) -> nn.Sequential:
    """Returns linear layers of the given widths with a ReLU after each but the last."""
    widths = (inputs, *hidden)
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], outputs))


def draw_parameters(model: nn.Module) -> None:
    """Fills every parameter from a generator of its own, seeded by (seed of the default generator, parameter name).

    So the values do not depend on the order in which layers are created. Weights are uniform in +-1/sqrt(inputs),
    PyTorch's own rule for linear layers; biases, which have one axis only, start at 0.
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
