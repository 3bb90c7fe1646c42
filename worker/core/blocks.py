"""Rows and gradients on their way to the parameter server, as columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from services.domain.plans import GradientTransfers, Transfers

Part = slice | NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Trained rows.

    Attributes:
        ids: uint64 [r].
        versions: int64 [r], the version each row has.
        rows: float32 [r, W].
    """

    ids: NDArray[np.uint64]
    versions: NDArray[np.int64]
    rows: NDArray[np.float32]

    def __getitem__(self, part: Part) -> Self:
        return type(self)(self.ids[part], self.versions[part], self.rows[part])


@dataclass(frozen=True, slots=True)
class GradientBlock:
    """The worker's own gradients of split rows.

    Attributes:
        ids: uint64 [r].
        targets: int64 [r], the version that each sum will make.
        contributors: uint64 [r], bit w set when worker slot w contributes.
        steps: int64 [r], optimizer step that produced the gradient.
        gradients: float32 [r, D].
    """

    ids: NDArray[np.uint64]
    targets: NDArray[np.int64]
    contributors: NDArray[np.uint64]
    steps: NDArray[np.int64]
    gradients: NDArray[np.float32]

    def __getitem__(self, part: Part) -> Self:
        return type(self)(
            self.ids[part], self.targets[part], self.contributors[part], self.steps[part], self.gradients[part]
        )


Block = RowBlock | GradientBlock


def half(rows: Transfers, early: bool) -> Transfers:
    """The entries that may move while the iteration before trains, or those that must wait for its end."""
    part = _part(rows, early)
    return Transfers(rows.ids[part], rows.slots[part], rows.versions[part], early=rows.early if early else 0)


def gradient_half(gradients: GradientTransfers, early: bool) -> GradientTransfers:
    """As `half`."""
    part = _part(gradients.rows, early)
    return GradientTransfers(half(gradients.rows, early), gradients.contributors[part], gradients.steps[part])


def _part(rows: Transfers, early: bool) -> slice:
    return slice(0, rows.early) if early else slice(rows.early, len(rows))
