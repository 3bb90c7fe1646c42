"""The dense (MLP) parameters: the same on every worker, trained on the summed gradient."""

from __future__ import annotations

import io
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from services.domain.errors import FailedPrecondition
from services.domain.tables import OptimizerSpec
from worker.training.dense_optimizer import DenseOptimizer


class DenseParameters:
    """Parameters of a model, and their gradients, in one flat vector each: one all-reduce sums, one step trains all."""

    def __init__(self, model: nn.Module, optimizer: OptimizerSpec) -> None:
        """Takes over the parameters of `model`, which must already be on its device, and their gradients."""
        self._named = dict(model.named_parameters())
        flat = nn.utils.parameters_to_vector(self._named.values()).detach()
        self.gradients = torch.zeros_like(flat)
        begin = 0
        for parameter in self._named.values():
            end = begin + parameter.numel()
            parameter.data = flat[begin:end].view_as(parameter)
            parameter.grad = self.gradients[begin:end].view_as(parameter)
            begin = end
        self._optimizer = DenseOptimizer(optimizer, flat)

    def clear_gradients(self) -> None:
        """Before a backward pass; also what a worker without samples contributes."""
        self.gradients.zero_()

    def step(self) -> None:
        """Applies the summed gradients."""
        self._optimizer.step(self.gradients)

    def to_npz(self) -> bytes:
        """All parameters by name, as numpy's .npz format in memory."""
        return _npz(self._parameters())

    def save(self) -> bytes:
        """Parameters and the optimizer's state, for `load`: .npz with `parameter/NAME` and `state/KEY`."""
        arrays = {f"parameter/{name}": values for name, values in self._parameters().items()}
        arrays |= {f"state/{key}": value.cpu().numpy() for key, value in self._optimizer.state.items()}
        return _npz(arrays)

    def load(self, data: bytes) -> None:
        """Goes back to what `save` returned, of the same model and optimizer.

        Raises:
            FailedPrecondition: something is missing or has another shape.
        """
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays, torch.no_grad():
            for name, parameter in self._named.items():
                parameter.copy_(_of_shape(arrays, f"parameter/{name}", parameter))
            for key, value in self._optimizer.state.items():
                value.copy_(_of_shape(arrays, f"state/{key}", value))

    def _parameters(self) -> dict[str, NDArray[np.float32]]:
        return {name: parameter.detach().cpu().numpy() for name, parameter in self._named.items()}


def _npz(arrays: Mapping[str, NDArray[np.float32]]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def _of_shape(arrays: Mapping[str, NDArray[np.float32]], name: str, like: Tensor) -> Tensor:
    saved = arrays.get(name)
    if saved is None or saved.shape != tuple(like.shape):
        raise FailedPrecondition(f"the checkpoint does not hold {name} of this model, {tuple(like.shape)} values")
    return torch.from_numpy(saved)
