"""The gradients of the dense parameters, and their all-reduce, which begins while the backward pass goes on."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import torch
from torch import nn

from esd.worker.training.all_reduce import DenseReducer

_BUCKET_BYTES = 1 << 20  # of a bucket, at least: each costs half a millisecond of processor time of its own


class GradientBuckets:
    """Gradients in one flat vector, which the workers sum in pieces.

    A backward pass makes the gradients of the last layers first. A bucket is a run of parameters, the first one at the
    end of the vector, and its sum starts as soon as the last of its gradients is there, while the layers before it are
    still to come. All workers start the same buckets in the same order, whatever their backward passes do, since the
    layout follows from the parameters' sizes, and none is started before the one that precedes it.

    Args:
        parameters: P values in all, in the order in which the model names them.
        reducer: of the epoch.

    Attributes:
        flat: float32 [P], after `wait` the sums over all workers.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], reducer: DenseReducer) -> None:
        self._reducer = reducer
        sizes = [parameter.numel() for parameter in parameters]
        device = parameters[0].device if parameters else None
        self.flat = torch.zeros(sum(sizes), device=device)
        self._places = [
            place.view_as(parameter) for place, parameter in zip(torch.split(self.flat, sizes), parameters, strict=True)
        ]
        self._buckets = _runs_from_the_end(sizes)
        self._sums = [self.flat[sum(sizes[: run.start]) : sum(sizes[: run.stop])] for run in self._buckets]
        self._missing = [set(run) for run in self._buckets]
        self._started = 0
        for bucket, run in enumerate(self._buckets):
            for at in run:
                hook = partial(self._arrived, bucket, at)
                parameters[at].register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]

    def start(self) -> None:
        """Starts what the backward pass has not. A parameter without a gradient, or samples, contributes zeros.

        Raises:
            Unavailable: another worker is lost.
        """
        for missing in self._missing[self._started :]:
            for at in missing:
                self._places[at].zero_()
            missing.clear()
        self._start_whole()

    def wait(self) -> None:
        """Ends the sums, once all of them are started.

        Raises:
            Unavailable: another worker is lost or late.
        """
        self.start()
        self._reducer.wait()
        self._missing = [set(run) for run in self._buckets]
        self._started = 0

    def _arrived(self, bucket: int, at: int, parameter: nn.Parameter) -> None:
        """Takes a gradient that the backward pass has made. torch gives the parameter."""
        assert parameter.grad is not None  # noqa: S101 - torch calls this when it is there
        self._places[at].copy_(parameter.grad)
        parameter.grad = None
        self._missing[bucket].discard(at)
        if not self._missing[bucket]:
            self._start_whole()

    def _start_whole(self) -> None:
        """Starts the buckets whose gradients are all there, in order, up to the first one that lacks some."""
        while self._started < len(self._buckets) and not self._missing[self._started]:
            self._reducer.start(self._sums[self._started])
            self._started += 1


def _runs_from_the_end(sizes: Sequence[int]) -> list[range]:
    """Splits parameters into runs of at least `_BUCKET_BYTES`, the last ones first; what is left joins the last run."""
    bounds, values = [len(sizes)], 0
    for start in reversed(range(len(sizes))):
        values += sizes[start]
        if 4 * values >= _BUCKET_BYTES:
            bounds.append(start)
            values = 0
    bounds[max(1, len(bounds) - 1) :] = [0]
    return [range(start, stop) for stop, start in pairwise(bounds) if start < stop]
