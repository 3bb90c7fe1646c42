"""Pending partial gradients in this process's memory."""

# ruff: noqa: D102 - the methods are documented in ps_server/core/store.py
from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from esd_native.rows import PartialGradients
from ps_server.core.store import Splits
from services.domain.rows import GradientBlock


class MemoryPartials:
    """A PartialStore that lasts as long as the process."""

    def __init__(self, dimension: int) -> None:
        self._dimension = dimension
        self._native = PartialGradients(dimension)

    @property
    def memory_bytes(self) -> int:
        return self._native.memory_bytes

    def inspect(self, block: GradientBlock) -> NDArray[np.uint8]:
        return self._native.inspect(block.ids, block.targets, block.contributors, block.steps, block.worker)

    def add(self, block: GradientBlock) -> None:
        self._native.add(block.ids, block.targets, block.contributors, block.steps, block.gradients, block.worker)

    def sum(self, block: GradientBlock) -> NDArray[np.float32]:
        return self._native.sum(block.ids, block.gradients, block.worker)

    def discard(self, ids: NDArray[np.uint64]) -> None:
        self._native.discard(ids)

    def splits(self, ids: NDArray[np.uint64]) -> Splits:
        return Splits(*self._native.splits(ids))

    def clear(self) -> None:
        self._native = PartialGradients(self._dimension)

    def __len__(self) -> int:
        return len(self._native)
