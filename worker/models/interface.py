"""What every model takes and gives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from services.domain.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class InputShape:
    """F id fields with rows of D values, and d dense features."""

    fields: int
    dimension: int
    dense_features: int


class ClickModel(nn.Module, ABC):
    """Embedding rows and dense features in, one logit per sample out.

    The rows come from the cache, so a model has no embedding table of its own; `parameters()` are the dense
    parameters, the same on every worker.
    """

    def __init__(self, shape: InputShape, hidden: tuple[int, ...]) -> None:
        """Builds the layers.

        Args:
            shape: of the input.
            hidden: widths of the MLP's hidden layers.
        """
        super().__init__()
        self.shape = shape
        self.hidden = hidden

    @abstractmethod
    def forward(self, rows: Tensor, dense: Tensor) -> Tensor:
        """Logits of m samples.

        Args:
            rows: float32 [m, F, D], the embedding row of each field.
            dense: float32 [m, d].

        Returns:
            float32 [m].
        """


def split_wide(rows: Tensor) -> tuple[Tensor, Tensor]:
    """First-order weights [m, F] and embedding vectors [m, F, D - 1] of rows that carry both.

    One row then serves the wide and the deep part, and an id costs one transfer, not two.
    """
    return rows[:, :, 0], rows[:, :, 1:]


def require_wide(shape: InputShape, model: str) -> int:
    """The width D - 1 of the embedding vectors; InvalidArgument when no column is left for them."""
    if shape.dimension < 2:
        raise InvalidArgument(
            f"dimension is {shape.dimension}, {model} needs at least 2: a first-order weight and an embedding vector"
        )
    return shape.dimension - 1


def join(rows: Tensor, dense: Tensor) -> Tensor:
    """The MLP's input [m, F * D + d]: all rows of a sample side by side, then its dense features."""
    return torch.cat((rows.flatten(1), dense), dim=1)
