"""Sums the dense gradients of all workers."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from services.domain.errors import Unavailable


class AllReduceGroup(Protocol):
    """What is used of torch's process groups."""

    def allreduce(self, tensors: list[Tensor], /) -> Any:
        """Starts summing each tensor over the group, in place; returns work to wait for."""


class DenseReducer:
    """The all-reduce group of one epoch. All workers call `sum` once per iteration.

    Attributes:
        waiting: whether this worker is in `sum`, which ends when all have come.
    """

    def __init__(self, group: AllReduceGroup | None) -> None:
        """`group` is None for a job of one worker."""
        self._group = group
        self.waiting = False

    def sum(self, gradients: Tensor) -> None:
        """Replaces the flat gradient vector by its sum over all workers, bit-identical on each.

        Raises:
            Unavailable: a worker is lost or late.
        """
        if self._group is None:
            return
        self.waiting = True
        try:
            self._group.allreduce([gradients]).wait()
        except RuntimeError as error:
            raise Unavailable(
                f"all-reduce failed, another worker is lost, or later than ESD_WORKER_PEER_TIMEOUT: {error}"
            ) from error
        finally:
            self.waiting = False

    def close(self) -> None:
        """Leaves the group: its connections close, so that others who wait for this worker stop waiting."""
        self._group = None
