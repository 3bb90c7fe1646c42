"""The sums over the workers of an epoch, by any way to sum (`--dense`)."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor


class DenseReducer(Protocol):
    """Sums gradients over the workers of one epoch, which all start the same pieces in the same order.

    The pieces lie in host memory; `Staged` takes others. They are gradients of dense parameters and of replicated rows,
    and changes of buffers. Each way to sum is one class.

    Attributes:
        waiting: whether this worker is in `wait`, which ends when all workers have come.
        wants: whether this worker has a use for the sums that it starts from now on. If not, a way to sum that can do
            without leaves the pieces as they are, and `wait` is the same barrier. Others replace them all the same.
    """

    waiting: bool
    wants: bool

    def begin(self, iteration: int) -> None:
        """Begins an iteration, whose number errors name."""

    def start(self, gradients: Tensor, *, zeros: bool = False) -> None:
        """Begins to replace a flat piece of the gradients by its sum over all workers, bit-identical on each of them.

        Args:
            gradients: [v], contiguous.
            zeros: whether the caller knows that all values are 0.

        Raises:
            Unavailable: a worker is lost, or this one has left.
        """

    def wait(self) -> None:
        """Returns when every started piece is summed.

        Raises:
            Unavailable: a worker is lost or late, or this one has left.
        """

    def close(self) -> None:
        """Leaves the epoch. The other workers stop waiting for this one, and the thread that trains stops waiting.

        The call may take long, so it belongs in a thread that the end of the process does not wait for.
        """


class Alone:
    """The sums of a single worker, which are its own gradients."""

    waiting = False
    wants = True

    def begin(self, iteration: int) -> None:
        """Needs no number."""

    def start(self, gradients: Tensor, *, zeros: bool = False) -> None:
        """Leaves the gradients as they are."""

    def wait(self) -> None:
        """Returns at once."""

    def close(self) -> None:
        """Has nothing to leave."""


class Staged:
    """The sums of gradients that lie on a GPU. They go through host memory, where all workers meet.

    So a machine with a GPU trains together with machines without one, and several workers may share a GPU, which NCCL
    supports neither of. Over a network of edge machines, two copies over PCIe cost little beside the sum itself.

    Args:
        on_host: sums the copies.
    """

    def __init__(self, on_host: DenseReducer) -> None:
        self.waiting = False
        self._on_host = on_host
        self._running: list[tuple[Tensor, Tensor]] = []  # gradients, and their copies on the host

    @property
    def wants(self) -> bool:
        """See DenseReducer."""
        return self._on_host.wants

    @wants.setter
    def wants(self, wants: bool) -> None:
        self._on_host.wants = wants

    def begin(self, iteration: int) -> None:
        """See DenseReducer."""
        self._on_host.begin(iteration)

    def start(self, gradients: Tensor, *, zeros: bool = False) -> None:
        """See DenseReducer. The call waits until the device has computed the gradients."""
        copy = torch.empty_like(gradients, device="cpu", pin_memory=True)
        copy.copy_(gradients.detach())
        self._on_host.start(copy, zeros=zeros)
        self._running.append((gradients, copy))

    def wait(self) -> None:
        """See DenseReducer."""
        running, self._running = self._running, []
        self.waiting = bool(running)
        try:
            self._on_host.wait()
        finally:
            self.waiting = False
        with torch.no_grad():
            for gradients, copy in running:
                gradients.copy_(copy, non_blocking=True)

    def close(self) -> None:
        """See DenseReducer."""
        self._on_host.close()
