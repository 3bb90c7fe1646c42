"""The gradients of the dense parameters, and their sum, which begins during the backward pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from esd.worker.training.reducer import DenseReducer
from esd.worker.training.same_parameters import SameParameters

_BUCKET_BYTES = 1 << 20  # least size of a bucket, because each costs half a millisecond of processor time


class GradientBuckets(SameParameters):
    """Gradients in one flat vector, which the workers sum in buckets.

    A backward pass computes the gradients of the last layers first. A bucket is a run of consecutive parameters; the
    first bucket is at the end of the vector. Its sum starts as soon as its last gradient exists, while earlier layers
    are still being computed. All workers start the same buckets in the same order, in any order of arrival of their
    gradients, because the layout follows from the parameters' sizes and no bucket starts before its predecessor.

    Args:
        parameters: P values in all, in the model's order.
        reducer: sums over the workers of the epoch.

    Attributes:
        parameters: the same.
        flat: float32 [P]; after `wait` the sums over all workers.
        places: views of it, by parameter.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], reducer: DenseReducer) -> None:
        self._reducer = reducer
        sizes = [parameter.numel() for parameter in parameters]
        device = parameters[0].device if parameters else None
        self.flat = torch.zeros(sum(sizes), device=device)
        self.parameters = parameters
        self.places = [
            place.view_as(parameter) for place, parameter in zip(torch.split(self.flat, sizes), parameters, strict=True)
        ]
        self._buckets = _runs_from_the_end(sizes)
        self._sums = [self.flat[sum(sizes[: run.start]) : sum(sizes[: run.stop])] for run in self._buckets]
        self._missing = [set(run) for run in self._buckets]
        self._zeros = [True] * len(self._buckets)  # whether no gradient of the bucket has arrived
        self._started = 0
        self._hooks: list[Any] = []
        for bucket, run in enumerate(self._buckets):
            for at in run:
                hook = partial(self._arrived, bucket, at)
                handle = parameters[at].register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]
                self._hooks.append(handle)

    def start(self) -> None:
        """Starts the buckets that the backward pass has not started. A missing gradient counts as zeros.

        Raises:
            Unavailable: another worker is lost.
        """
        for missing in self._missing[self._started :]:
            for at in missing:
                self.places[at].zero_()
            missing.clear()
        self._start_whole()

    def wait(self) -> None:
        """Waits for all sums, after starting the missing ones.

        Raises:
            Unavailable: another worker is lost or late.
        """
        self.start()
        self._reducer.wait()
        self._missing = [set(run) for run in self._buckets]
        self._zeros = [True] * len(self._buckets)
        self._started = 0

    def gather(self, state: Mapping[str, Tensor], *, leads: bool) -> None:
        """See SummedGradients."""

    def drop(self) -> None:
        """See SummedGradients."""

    @property
    def state(self) -> Mapping[str, Tensor]:
        """See SummedGradients."""
        return {}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """See SummedGradients."""

    def close(self) -> None:
        """Leaves the parameters alone: backward passes of a later epoch are none of this one's."""
        for handle in self._hooks:
            handle.remove()

    def _arrived(self, bucket: int, at: int, parameter: nn.Parameter) -> None:
        """Copies a new gradient into its bucket. torch passes the parameter."""
        assert parameter.grad is not None  # noqa: S101 - torch calls this hook after it has set the gradient
        self.places[at].copy_(parameter.grad)
        parameter.grad = None
        self._missing[bucket].discard(at)
        self._zeros[bucket] = False
        if not self._missing[bucket]:
            self._start_whole()

    def _start_whole(self) -> None:
        """Starts the complete buckets, in order, up to the first incomplete one."""
        while self._started < len(self._buckets) and not self._missing[self._started]:
            self._reducer.start(self._sums[self._started], zeros=self._zeros[self._started])
            self._started += 1


def _runs_from_the_end(sizes: Sequence[int]) -> list[range]:
    """Splits parameters into runs of at least `_BUCKET_BYTES`, the last ones first; the rest joins the last run."""
    bounds, values = [len(sizes)], 0
    for start in reversed(range(len(sizes))):
        values += sizes[start]
        if 4 * values >= _BUCKET_BYTES:
            bounds.append(start)
            values = 0
    bounds[max(1, len(bounds) - 1) :] = [0]
    return [range(start, stop) for stop, start in pairwise(bounds) if start < stop]
