"""The gradients of the dense parameters, as the workers sum them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from numpy.typing import NDArray
from torch import Tensor, nn

from esd.services.domain.dense_sums import LowRank
from esd.services.domain.jobs import JobSpec
from esd.worker.training.gradient_buckets import GradientBuckets
from esd.worker.training.low_rank import LowRankGradients
from esd.worker.training.reducer import DenseReducer


class SummedGradients(Protocol):
    """Gradients of one backward pass, and then their sums over the workers.

    Attributes:
        parameters: P values in all, in the model's order.
        flat: float32 [P]; after `wait` the gradients to train.
        places: views of it, by parameter.
    """

    parameters: Sequence[nn.Parameter]
    flat: Tensor
    places: list[Tensor]

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

    def gather(self, *, leads: bool) -> None:
        """Moves the errors that all workers keep from one iteration to the next to the worker that leads.

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
    return partial(LowRankGradients, way=way, seed=job.seed) if isinstance(way, LowRank) else GradientBuckets
