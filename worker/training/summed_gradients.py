"""The gradients of the dense parameters, as the workers sum them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from numpy.typing import NDArray
from torch import Tensor, nn

from esd.services.domain.dense_sums import Every, LowRank
from esd.services.domain.jobs import JobSpec
from esd.worker.training.averages import AveragedParameters
from esd.worker.training.gradient_buckets import GradientBuckets
from esd.worker.training.low_rank import LowRankGradients
from esd.worker.training.reducer import Alone, DenseReducer


class SummedGradients(Protocol):
    """Gradients of one backward pass, and then their sums over the workers.

    One way (`--dense every:H`) averages the parameters in place of the gradients.

    Attributes:
        parameters: P values in all, in the model's order.
        flat: float32 [P]; after `wait` the gradients to train.
        places: views of it, by parameter.
    """

    parameters: Sequence[nn.Parameter]
    flat: Tensor
    places: list[Tensor]

    def begin(self, samples: int, batch_size: int) -> None:
        """Begins an iteration.

        Args:
            samples: that this worker trains.
            batch_size: k, the samples of all workers.
        """

    def start(self) -> None:
        """Starts the sums that the backward pass has not started. A missing gradient counts as zeros.

        Raises:
            Unavailable: another worker is lost.
        """

    def wait(self) -> None:
        """Waits for all sums.

        Raises:
            Unavailable: another worker is lost or late.
        """

    def trained(self, iteration: int, state: Mapping[str, Tensor]) -> None:
        """Is called when the optimizer has trained the parameters.

        Args:
            iteration: that ends.
            state: of the optimizer, by name; may be changed.

        Raises:
            Unavailable: another worker is lost or late.
        """

    def settle(self, state: Mapping[str, Tensor]) -> None:
        """Makes the parameters, and the state of their optimizer, the same on all workers, at the end of the stream.

        Raises:
            Unavailable: another worker is lost or late.
        """

    def take_drift(self) -> float:
        """Returns how far the parameters were from an average since the last call, as IterationReport has it."""

    def gather(self, state: Mapping[str, Tensor], *, leads: bool) -> None:
        """Settles the parameters, and moves the errors that all workers keep to the worker that leads.

        It precedes a checkpoint.

        Raises:
            Unavailable: another worker is lost or late.
        """

    def drop(self) -> None:
        """Forgets the errors, which another worker has after `gather`."""

    @property
    def state(self) -> Mapping[str, Tensor]:
        """The values that are kept from one iteration to the next, by name."""

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Goes back to a state. A state of another way to sum is ignored."""

    def close(self) -> None:
        """Leaves the parameters alone."""


def gradients_of(job: JobSpec) -> Callable[[Sequence[nn.Parameter], DenseReducer], SummedGradients]:
    """Returns the maker of the gradients of a job's parameters, by its way to sum them."""
    way = job.dense_sum
    if isinstance(way, LowRank):
        return partial(LowRankGradients, way=way, seed=job.seed)
    return partial(_averaged, way=way) if isinstance(way, Every) else GradientBuckets


def _averaged(parameters: Sequence[nn.Parameter], reducer: DenseReducer, *, way: Every) -> SummedGradients:
    """A single worker has nothing to average."""
    if isinstance(reducer, Alone):
        return GradientBuckets(parameters, reducer)
    return AveragedParameters(parameters, reducer, way=way)
