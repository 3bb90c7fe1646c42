"""Averages of dense parameters in place of sums of their gradients (`--dense every:H`)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from esd.services.domain.dense_sums import Every
from esd.services.domain.reports import MOST_DRIFT
from esd.worker.training.gradient_buckets import GradientBuckets
from esd.worker.training.reducer import Alone, DenseReducer


class AveragedParameters:
    """Gradients of this worker's own samples, by which it trains its own parameters between two averages.

    A gradient is the mean over the worker's samples, as if its batch were all. In an average each worker counts by its
    samples since the last one. So with an average in each iteration, equal parameters and SGD, the workers take the
    step of the sum. Moments of the optimizer are averaged like parameters. A worker without samples steps with zeros.

    Every iteration sums one value, since checkpoints and forgotten rows rely on a sum in each iteration as barrier.

    Args:
        parameters: P values in all, in the model's order.
        reducer: sums over the workers of the epoch.
        way: says when averages are due.

    Attributes:
        parameters: as above.
        flat: float32 [P]; after `wait` the mean gradient of the own samples.
        places: views of it, by parameter.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], reducer: DenseReducer, *, way: Every) -> None:
        self._own = GradientBuckets(parameters, Alone())
        self._reducer = reducer
        self._way = way
        self.parameters = parameters
        self.flat = self._own.flat
        self.places = self._own.places
        self._drift = 0.0
        self._scale = 1.0  # from a gradient divided by the samples of all workers to the mean over the own ones
        self._samples = 0  # own ones since the last average
        self._iterations = 0  # since the last average

    def begin(self, samples: int, batch_size: int) -> None:
        """See SummedGradients."""
        self._scale = batch_size / max(1, samples)
        self._samples += samples
        self._iterations += 1

    def start(self) -> None:
        """Starts the barrier. Raises Unavailable if another worker is lost."""
        self._own.wait()
        self.flat.mul_(self._scale)
        if self.parameters:
            self._reducer.start(torch.zeros(1, device=self.flat.device))

    def wait(self) -> None:
        """Waits for the barrier.

        Raises:
            Unavailable: another worker is lost or late.
        """
        self._reducer.wait()

    def trained(self, iteration: int, state: Mapping[str, Tensor]) -> None:
        """Averages the parameters if that is due. See SummedGradients."""
        if self._way.due(iteration):
            self.settle(state)

    @torch.no_grad()
    def settle(self, state: Mapping[str, Tensor]) -> None:
        """Averages the parameters, unless nothing was trained since the last time. See SummedGradients."""
        if not self._iterations or not self.parameters:
            return
        moments = [each for each in state.values() if each.ndim]  # the count of steps is the same on all workers
        averaged = [each.view(-1) for each in (*self.parameters, *moments)]
        own = torch.cat([*averaged, torch.ones(1, device=self.flat.device)])
        sums = own * self._samples
        self._reducer.start(sums, zeros=not self._samples)
        self._reducer.wait()
        means = sums.div_(sums[-1].item())
        self._drift = _distance(own[: len(self.flat)], means[: len(self.flat)])
        for values, mean in zip(averaged, torch.split(means[:-1], [*map(len, averaged)]), strict=True):
            values.copy_(mean)
        self._samples = self._iterations = 0

    def take_drift(self) -> float:
        """See SummedGradients."""
        drift, self._drift = self._drift, 0.0
        return drift

    def gather(self, state: Mapping[str, Tensor], *, leads: bool) -> None:  # noqa: ARG002 - all workers have the average
        """See SummedGradients."""
        self.settle(state)

    def drop(self) -> None:
        """See SummedGradients."""

    @property
    def state(self) -> Mapping[str, Tensor]:
        """See SummedGradients."""
        return {}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """See SummedGradients."""

    def close(self) -> None:
        """Leaves the parameters alone."""
        self._own.close()


def _distance(values: Tensor, means: Tensor) -> float:
    """Returns the distance by the norm of the means; 0 where both are 0, MOST_DRIFT where it is not finite."""
    distance, norm = (values - means).norm().item(), means.norm().item()
    if not distance:
        return 0.0
    drift = distance / norm if norm else math.inf
    return min(MOST_DRIFT, drift)
