"""Gradients of low rank (`--dense low-rank:R`): PowerSGD with error feedback, which is linear in the gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from esd.services.domain.dense_sums import LowRank
from esd.worker.training.gradient_buckets import GradientBuckets
from esd.worker.training.reducer import Alone, DenseReducer
from esd.worker.training.same_parameters import SameParameters

_ERROR, _BASIS = "low-rank/error/", "low-rank/basis/"  # of a matrix, by its place among the parameters


class LowRankGradients(SameParameters):
    """Gradients in one flat vector, of which the workers sum factors instead of matrices (PowerSGD, Algorithm 1).

    For each matrix the gradient G of a worker, and the error E that it has kept, make M = G + E. The workers sum
    P = M Q over all of them, with a basis Q that all have, and orthonormalise it; then they sum M^T P. The product of P
    and this sum is the gradient that is trained, and M without it is the next error. Both sums are linear in M,
    so only the sum of all errors counts, and n workers take the step that one takes. Other parameters, and matrices
    that the factors would not shrink, are summed as they are.

    The factors are orthonormalised and multiplied in float64, so that workers whose processors round differently get
    the same float32 gradients.

    Args:
        parameters: P values in all, in the model's order.
        reducer: sums over the workers of the epoch.
        way: has R, the columns of the factors.
        seed: of the first bases.

    Attributes:
        parameters: as above.
        flat: float32 [P]; after `wait` the gradients of low rank.
        places: views of it, by parameter.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], reducer: DenseReducer, *, way: LowRank, seed: int) -> None:
        self._own = GradientBuckets(parameters, Alone())
        self._reducer = reducer
        self.parameters = parameters
        self.flat = self._own.flat
        self.places = self._own.places
        random = torch.Generator().manual_seed(seed)
        self._matrices: dict[int, _Matrix] = {}
        self._others: list[Tensor] = []  # the places that are summed as they are
        for at, place in enumerate(self.places):
            if way.factors(tuple(place.shape)):
                basis = torch.randn(place.shape[1], way.rank, generator=random, dtype=torch.float64)
                self._matrices[at] = _Matrix(place, _orthonormal(basis.to(place.device)))
            else:
                self._others.append(place.view(-1))
        self._sums = torch.empty(0)

    def start(self) -> None:
        """Starts the first sums. Raises Unavailable if another worker is lost."""
        self._own.wait()
        columns = [each.project() for each in self._matrices.values()]
        if self.parameters:
            self._sums = torch.cat([*(each.reshape(-1) for each in columns), *self._others])
            self._reducer.start(self._sums)

    def wait(self) -> None:
        """Waits for the first sums, makes the second ones, and puts the gradients together.

        Raises:
            Unavailable: another worker is lost or late.
        """
        self._reducer.wait()
        matrices = self._matrices.values()
        parts = torch.split(self._sums, [*(each.columns for each in matrices), *map(len, self._others)])
        for place, part in zip(self._others, parts[len(matrices) :], strict=True):
            place.copy_(part)
        if not matrices:
            return
        rows = [each.turn(part) for each, part in zip(matrices, parts[: len(matrices)], strict=True)]
        second = torch.cat([each.reshape(-1) for each in rows])
        self._reducer.start(second)
        self._reducer.wait()
        for each, part in zip(matrices, torch.split(second, [each.rows for each in matrices]), strict=True):
            each.finish(part)

    def close(self) -> None:
        """Leaves the parameters alone."""
        self._own.close()

    def gather(self, state: Mapping[str, Tensor], *, leads: bool) -> None:  # noqa: ARG002 - the same on all workers
        """Moves the errors of all workers to a single one, which holds their sum then, for a checkpoint.

        Args:
            state: of the optimizer.
            leads: whether this worker gets them.

        Raises:
            Unavailable: another worker is lost or late.
        """
        for each in self._matrices.values():
            self._reducer.start(each.error.view(-1))
        if self._matrices:
            self._reducer.wait()
        if not leads:
            self.drop()

    def drop(self) -> None:
        """Forgets the errors, which another worker has."""
        for each in self._matrices.values():
            each.error.zero_()

    @property
    def state(self) -> Mapping[str, Tensor]:
        """The errors and the bases, by name."""
        errors = {f"{_ERROR}{at}": each.error for at, each in self._matrices.items()}
        return errors | {f"{_BASIS}{at}": each.basis for at, each in self._matrices.items()}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Goes back to a state. Values that it does not hold, or holds for another rank, are as at first."""
        for name, values in self.state.items():
            saved = arrays.get(name, np.empty(0))
            if saved.shape == tuple(values.shape):
                values.copy_(torch.from_numpy(saved))


class _Matrix:
    """One matrix, [a, b], and its factors.

    Attributes:
        error: float32 [a, b], the part of this worker's gradients that was not trained.
        basis: float64 [b, R], with orthonormal columns, the same on all workers.
    """

    def __init__(self, place: Tensor, basis: Tensor) -> None:
        self.error = torch.zeros_like(place)
        self.basis = basis
        self._place = place
        self._left = basis  # P, from `turn` on
        self._own = basis  # M^T P of this worker

    @property
    def columns(self) -> int:
        """The number of values of P."""
        return self._place.shape[0] * self.basis.shape[1]

    @property
    def rows(self) -> int:
        """The number of values of M^T P."""
        return self._place.shape[1] * self.basis.shape[1]

    def project(self) -> Tensor:
        """Returns M Q: float32 [a, R]."""
        self.error += self._place
        return self.error @ self.basis.float()

    def turn(self, summed: Tensor) -> Tensor:
        """Takes the summed M Q, and returns M^T P: float32 [b, R]."""
        self._left = _orthonormal(summed.view(self._place.shape[0], -1).double())
        # All workers wait for this product, and torch takes a fraction of the time of M^T P for it.
        self._own = (self._left.float().T @ self.error).T
        return self._own

    def finish(self, summed: Tensor) -> None:
        """Takes the summed M^T P, and writes the gradient, the error and the next basis."""
        right = summed.view(self._place.shape[1], -1).double()
        self.error -= self._left.float() @ self._own.T
        self._place.copy_(self._left @ right.T)
        self.basis.copy_(_orthonormal(right))


def _orthonormal(columns: Tensor) -> Tensor:
    """Returns an orthonormal basis, float64 [a, R], whose span holds the columns."""
    basis: Tensor = torch.linalg.qr(columns)[0]
    return basis
