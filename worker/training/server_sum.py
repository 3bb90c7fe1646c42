"""The sums of gradients at the parameter servers (`--dense server`)."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, Protocol

from numpy.typing import NDArray
from torch import Tensor

from esd.services.domain.errors import DeadlineExceeded, FailedPrecondition, Unavailable


class Sums(Protocol):
    """Sums vectors with the other workers; `SumClient` does."""

    def start(self, iteration: int, vector: NDArray[Any], *, zeros: bool, wanted: bool) -> Future[None]:
        """Begins to replace a vector by its sum, if it is wanted; the result is done when the sum is complete."""

    def leave(self) -> None:
        """Fails all sums."""


class ServerReducer:
    """Sums gradients over the workers of one epoch at the parameter servers.

    Args:
        sums: of this worker.
    """

    def __init__(self, sums: Sums) -> None:
        self.waiting = False
        self.wants = True
        self._sums = sums
        self._iteration = 0
        self._running: list[Future[None]] = []

    def begin(self, iteration: int) -> None:
        """See DenseReducer."""
        self._iteration = iteration

    def start(self, gradients: Tensor, *, zeros: bool = False) -> None:
        """See DenseReducer."""
        vector = gradients.detach().numpy()
        self._running.append(self._sums.start(self._iteration, vector, zeros=zeros, wanted=self.wants))

    def wait(self) -> None:
        """See DenseReducer."""
        running, self._running = self._running, []
        self.waiting = bool(running)
        try:
            for done in running:
                done.result()
        except (DeadlineExceeded, FailedPrecondition) as error:
            raise Unavailable(f"another worker is late, or the sums of the epoch are over: {error}") from error
        finally:
            self.waiting = False

    def close(self) -> None:
        """See DenseReducer."""
        self._sums.leave()
