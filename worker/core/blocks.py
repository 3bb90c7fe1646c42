"""Rows and gradients on their way to the parameter server, as columns."""

from __future__ import annotations

from collections.abc import Iterator
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


@dataclass(frozen=True, slots=True)
class Push:
    """What goes to the parameter servers at once, counted rows first, then gradients."""

    rows: RowBlock
    gradients: GradientBlock

    def __len__(self) -> int:
        return len(self.rows.ids) + len(self.gradients.ids)

    def pieces(self, size: int) -> Iterator[Self]:
        """The push in pieces of at most `size` rows and gradients, in order."""
        border = len(self.rows.ids)
        for begin in range(0, len(self), size):
            end = begin + size
            yield type(self)(
                self.rows[min(begin, border) : end], self.gradients[max(begin - border, 0) : max(end - border, 0)]
            )


def half(early: bool, *transfers: Transfers) -> Transfers:
    """The entries that may move while the iteration before trains, or those that must wait for its end."""
    parts = [(each, _part(each, early)) for each in transfers]
    ids = np.concatenate([each.ids[part] for each, part in parts])
    slots = np.concatenate([each.slots[part] for each, part in parts])
    versions = np.concatenate([each.versions[part] for each, part in parts])
    return Transfers(ids, slots, versions, early=len(ids) if early else 0)


def gradient_half(early: bool, *transfers: GradientTransfers) -> GradientTransfers:
    """As `half`."""
    parts = [(each, _part(each.rows, early)) for each in transfers]
    contributors = np.concatenate([each.contributors[part] for each, part in parts])
    steps = np.concatenate([each.steps[part] for each, part in parts])
    return GradientTransfers(half(early, *(each.rows for each in transfers)), contributors, steps)


def _part(rows: Transfers, early: bool) -> slice:
    return slice(0, rows.early) if early else slice(rows.early, len(rows))
