"""The ways to sum dense gradients over the workers, of which a job chooses one: a class of each, with its options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from esd.services.domain.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class DenseSum:
    """A way to sum the gradients that all workers share, with its options. Each subclass is one way.

    The gradients are those of the dense parameters and of replicated rows, and changes of buffers.

    Attributes:
        name: as `--dense` names it.

    Example:
        >>> job = esd.TrainedModel.load("model.npz").job
        >>> str(job.dense_sum)
        'all-reduce'
    """

    name: ClassVar[str]

    def sent_bytes(self, floats: int, workers: int) -> int:
        """Returns the bytes that one of n workers sends, and receives, to sum float32 values over all of them."""
        raise NotImplementedError

    def __str__(self) -> str:
        """Returns the way as `--dense` has it."""
        return self.name


@dataclass(frozen=True, slots=True)
class AllReduce(DenseSum):
    """Sums in a ring of the workers, which send to each other (gloo, or NCCL on GPUs)."""

    name: ClassVar[str] = "all-reduce"

    def sent_bytes(self, floats: int, workers: int) -> int:
        """Returns 2 (n-1)/n of the values' bytes."""
        return 2 * 4 * floats * (workers - 1) // workers


@dataclass(frozen=True, slots=True)
class ServerSum(DenseSum):
    """Sums at the parameter servers, in the order of the workers: each sends its gradients, and gets the sums, once."""

    name: ClassVar[str] = "server"

    def sent_bytes(self, floats: int, workers: int) -> int:
        """Returns the values' bytes; 0 for a single worker."""
        return 4 * floats if workers > 1 else 0


ALL_REDUCE = AllReduce()

DENSE_SUMS: dict[str, type[DenseSum]] = {way.name: way for way in (AllReduce, ServerSum)}


def parse_dense_sum(text: str) -> DenseSum:
    """Reads a way to sum dense gradients.

    >>> esd.parse_dense_sum("server")
    ServerSum()

    Args:
        text: as `--dense` has it.

    Raises:
        InvalidArgument: there is no way of this name.
    """
    way = DENSE_SUMS.get(text)
    if way is None:
        raise InvalidArgument(f"--dense {text!r} is unknown; there are {', '.join(DENSE_SUMS)}")
    return way()
