"""The common part of the ways to sum gradients in every iteration: all workers have the same parameters at any time."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor


class SameParameters:
    """The part of SummedGradients that is about parameters, where these are trained by the gradient of all workers."""

    def begin(self, samples: int, batch_size: int) -> None:
        """Needs no numbers."""

    def trained(self, iteration: int, state: Mapping[str, Tensor]) -> None:
        """Leaves the parameters, which are the same."""

    def settle(self, state: Mapping[str, Tensor]) -> None:
        """Leaves the parameters, which are the same."""

    def take_drift(self) -> float:
        """Returns 0."""
        return 0.0
