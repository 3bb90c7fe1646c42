"""The dense (MLP) parameters of a model: the same on every worker, unless `--dense every:H` averages them."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from esd.services.domain.dense_roles import DenseRole
from esd.services.domain.errors import FailedPrecondition
from esd.worker.training.gradient_buckets import GradientBuckets
from esd.worker.training.reducer import DenseReducer
from esd.worker.training.returns import pass_state
from esd.worker.training.shared_buffers import SharedBuffers
from esd.worker.training.summed_gradients import SummedGradients

_ENTRY_BYTES = 1024  # of an array in a .npz file besides its values and twice its name


class ParametersOptimizer(Protocol):
    """Trains dense parameters by their gradients; `SummedGradients` has both."""

    @property
    def state(self) -> Mapping[str, Tensor]:
        """The tensors that a checkpoint must keep, by name."""

    def show(self) -> None:
        """Is called when the gradients are summed, before `step`."""

    def step(self, iteration: int) -> None:
        """Trains the parameters in an iteration."""

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Goes back to a state.

        Raises:
            FailedPrecondition: something is missing or has another shape.
        """


class DenseParameters:
    """The trained parameters of a model in one epoch, their gradients, and the buffers of the model.

    Args:
        model: must already be on its device.
        reducer: sums the gradients of backward passes over the workers of the epoch.
        optimizer_of: makes the optimizer of the parameters.
        gradients_of: makes their gradients.

    Attributes:
        model: the same.
        reducer: the same.
        named: all parameters by name.
        buffers: of the model, those that change.
        gradients: float32 [P], the sums, once `wait` has returned.
    """

    def __init__(
        self,
        model: nn.Module,
        reducer: DenseReducer,
        optimizer_of: Callable[[SummedGradients], ParametersOptimizer],
        gradients_of: Callable[[Sequence[nn.Parameter], DenseReducer], SummedGradients] = GradientBuckets,
    ) -> None:
        self.model = model
        self.reducer = reducer
        # A parameter that several modules share has several names, and a loaded model must have each of them.
        self.named = dict(model.named_parameters(remove_duplicate=False))
        self.buffers = SharedBuffers(model, reducer)
        self._buckets = gradients_of([each for each in model.parameters() if each.requires_grad], reducer)
        self.gradients = self._buckets.flat
        self._optimizer = optimizer_of(self._buckets)
        self._rests = False

    def begin(self, iteration: int, samples: int, batch_size: int, role: DenseRole = DenseRole.TRAINS) -> None:
        """Begins an iteration, of which this worker trains some samples of the batch.

        Args:
            iteration: of the plan.
            samples: that this worker trains.
            batch_size: k, the samples of all workers.
            role: of this worker. One that returns gets the state here, before it trains.

        Raises:
            Unavailable: another worker is lost or late.
        """
        self.reducer.begin(iteration)
        if role.sees_return:
            pass_state(self._state, self.reducer, role)
        self.reducer.wants = not role.rests
        self._rests = role.rests
        self._buckets.begin(samples, batch_size)

    def start(self) -> None:
        """Starts the sums that the last backward pass has not started, so that later sums come after them.

        Raises:
            Unavailable: another worker is lost.
        """
        self._buckets.start()

    def wait(self) -> None:
        """Waits until the gradients of the last backward pass, if there was one, are summed over all workers.

        So are the changes of buffers, which are in the buffers then. A worker that rests waits, too, and gets no sums.

        Raises:
            Unavailable: another worker is lost or late.
        """
        self._buckets.wait()
        if not self._rests:
            self._optimizer.show()
            self.buffers.finish()

    def step(self, iteration: int) -> None:
        """Trains the parameters with the summed gradients, unless this worker rests."""
        if not self._rests:
            self._optimizer.step(iteration)

    def end(self, iteration: int) -> None:
        """Ends an iteration after its step: averages the parameters over the workers, where that is due.

        Raises:
            Unavailable: another worker is lost or late.
        """
        self._buckets.trained(iteration, self._optimizer.state)

    def settle(self) -> None:
        """Makes the parameters the same on all workers. All call it before one returns the final model.

        Raises:
            Unavailable: another worker is lost or late.
        """
        self._buckets.settle(self._optimizer.state)

    def take_drift(self) -> float:
        """Returns how far the parameters were from an average since the last call, as IterationReport has it."""
        return self._buckets.take_drift()

    def close(self) -> None:
        """Leaves the model alone: it is trained in another epoch."""
        self._buckets.close()

    @property
    def model_bytes(self) -> int:
        """An upper bound of the bytes of `to_npz`."""
        kept = self.named | self._kept_buffers()
        return sum(
            values.numel() * values.element_size() + _ENTRY_BYTES + 2 * len(name) for name, values in kept.items()
        )

    def to_npz(self) -> bytes:
        """Returns all parameters and buffers by name, in numpy's .npz format."""
        return _npz(_on_host(self.named | self._kept_buffers()))

    def save(self) -> bytes:
        """Returns the data for `load`: .npz with `parameter/NAME`, `buffer/NAME`, `state/KEY` and `gradients/KEY`."""
        state = {f"state/{name}": values for name, values in self._optimizer.state.items()}
        kept = {f"gradients/{name}": values for name, values in self._buckets.state.items()}
        return _npz(_on_host(self._of_model() | state | kept))

    def gather(self, *, leads: bool) -> None:
        """Settles, and moves the errors of all workers' gradients to the one that leads. All call it before one saves.

        Raises:
            Unavailable: another worker is lost or late.
        """
        self._buckets.gather(self._optimizer.state, leads=leads)

    def load(self, data: bytes, *, leads: bool = True) -> None:
        """Restores the data of `save`, of the same model and optimizer.

        Args:
            data: the same on all workers.
            leads: whether this worker gets the errors that `gather` has moved to a worker.

        Raises:
            FailedPrecondition: a parameter, buffer or state is missing or has another shape.
        """
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays, torch.no_grad():
            for name, values in self._of_model().items():
                values.copy_(of_shape(arrays, name, values))
            state, kept = (_below(prefix, arrays) for prefix in ("state/", "gradients/"))
        self._optimizer.load(state)
        self._buckets.load(kept)
        if not leads:
            self._buckets.drop()

    @property
    def _state(self) -> list[Tensor]:
        """The tensors that an iteration changes, in the same order on all workers."""
        return [*self._buckets.parameters, *self._optimizer.state.values(), *self.buffers.values]

    def _of_model(self) -> dict[str, Tensor]:
        kinds: dict[str, Mapping[str, Tensor]] = {"parameter": self.named, "buffer": self._kept_buffers()}
        return {f"{kind}/{name}": values for kind, named in kinds.items() for name, values in named.items()}

    def _kept_buffers(self) -> dict[str, Tensor]:
        named, kept = self.model.named_buffers(remove_duplicate=False), self.model.state_dict()
        return {name: values for name, values in named if name in kept}


def of_shape(arrays: Mapping[str, NDArray[Any]], name: str, like: Tensor) -> Tensor:
    """Returns a saved array. Raises FailedPrecondition unless it is there in the shape of `like`."""
    saved = arrays.get(name)
    if saved is None or saved.shape != tuple(like.shape):
        raise FailedPrecondition(f"the checkpoint does not hold {name} of this model, {tuple(like.shape)} values")
    return torch.from_numpy(saved)


def _below(prefix: str, arrays: Any) -> dict[str, NDArray[Any]]:
    """Returns the arrays of a file whose names begin so, by the rest of their names."""
    return {name.removeprefix(prefix): arrays[name] for name in arrays.files if name.startswith(prefix)}


def _on_host(tensors: Mapping[str, Tensor]) -> dict[str, NDArray[Any]]:
    return {name: values.detach().cpu().numpy() for name, values in tensors.items()}


def _npz(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()
