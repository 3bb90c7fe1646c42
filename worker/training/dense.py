"""The dense (MLP) parameters and their optimizer: the same on every worker, trained on the summed gradient."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim.adagrad import adagrad
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.jobs import ModelSpec
from esd.services.domain.tables import OptimizerKind
from esd.worker.training.all_reduce import DenseReducer
from esd.worker.training.gradient_buckets import GradientBuckets

_MOMENTS = {
    OptimizerKind.SGD: (),
    OptimizerKind.ROWWISE_ADAGRAD: ("sum",),
    OptimizerKind.ADAM: ("exp_avg", "exp_avg_sq"),
}


class DenseParameters:
    """The trained parameters of a model, and their gradients, each in one flat vector of P floats.

    So few calls sum all gradients, and one step trains all parameters.

    Args:
        model: must already be on its device; its parameters become views of the vector.
        spec: the optimizer and its settings.
        reducer: sums the gradients of backward passes over the workers of the epoch.

    Attributes:
        gradients: float32 [P], the sums, once `wait` has returned.
    """

    def __init__(self, model: nn.Module, spec: ModelSpec, reducer: DenseReducer) -> None:
        # A parameter that several modules share has several names, and a loaded model must have each of them.
        self._named = dict(model.named_parameters(remove_duplicate=False))
        named_buffers = model.named_buffers(remove_duplicate=False)
        self._buffers = {name: values for name, values in named_buffers if name in model.state_dict()}
        parameters = [each for each in model.parameters() if each.requires_grad]
        self._buckets = GradientBuckets(parameters, reducer)
        self.gradients = self._buckets.flat
        flat = torch.empty_like(self.gradients)
        for parameter, place in zip(parameters, torch.split(flat, [each.numel() for each in parameters]), strict=True):
            parameter.data = place.view_as(parameter).copy_(parameter.detach())
        self._clip_norm = spec.clip_norm
        self._optimizer = DenseOptimizer(spec, flat)

    def start(self) -> None:
        """Starts the sums that the last backward pass has not started, so that later sums come after them.

        Raises:
            Unavailable: another worker is lost.
        """
        self._buckets.start()

    def wait(self) -> None:
        """Waits until the gradients of the last backward pass, if there was one, are summed over all workers.

        Raises:
            Unavailable: another worker is lost or late.
        """
        self._buckets.wait()

    def step(self, rate: float) -> None:
        """Trains the parameters with the summed gradients, at the given learning rate."""
        if self._clip_norm:
            clip(self.gradients, self._clip_norm)
        self._optimizer.step(self.gradients, rate)

    def to_npz(self) -> bytes:
        """Returns all parameters and buffers by name, in numpy's .npz format."""
        return _npz(_on_host(self._named | self._buffers))

    def save(self) -> bytes:
        """Returns the data for `load`, as .npz with `parameter/NAME`, `buffer/NAME` and `state/KEY`."""
        return _npz(_on_host(self._saved()))

    def load(self, data: bytes) -> None:
        """Restores the data of `save`, of the same model and optimizer.

        Raises:
            FailedPrecondition: a parameter, buffer or state is missing or has another shape.
        """
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays, torch.no_grad():
            for name, values in self._saved().items():
                values.copy_(_of_shape(arrays, name, values))

    def _saved(self) -> dict[str, Tensor]:
        kinds: dict[str, Mapping[str, Tensor]] = {
            "parameter": self._named,
            "buffer": self._buffers,
            "state": self._optimizer.state,
        }
        return {f"{kind}/{name}": values for kind, named in kinds.items() for name, values in named.items()}


class DenseOptimizer:
    """Trains a vector of parameters with torch's own steps.

    The steps are called as functions, on a CPU the fused ones, which pass over the vectors once. The classes of
    torch.optim would import torch's compiler into every worker, which took two of the five seconds of its start, and of
    every restart after a failure.

    Args:
        spec: the optimizer, its constants, and the weight decay.
        parameters: float32 [P], trained in place.

    Attributes:
        state: the state to keep in a checkpoint, by name: float32 [P] on the parameters' device, and the count of
            steps, float32 [], on the host as torch requires.
    """

    def __init__(self, spec: ModelSpec, parameters: Tensor) -> None:
        self._spec = spec.dense_optimizer
        self._decay = spec.weight_decay
        self._parameters = parameters
        self._fused = True if parameters.device.type == "cpu" else None
        self.state = {name: torch.zeros_like(parameters) for name in _MOMENTS[self._spec.kind]}
        if self.state:
            self.state["step"] = torch.zeros(())

    @torch.no_grad()
    def step(self, gradients: Tensor, rate: float) -> None:
        """Takes one step along `gradients`, float32 [P], at the given learning rate."""
        spec, state = self._spec, self.state
        match spec.kind:
            case OptimizerKind.SGD:
                sgd(
                    [self._parameters],
                    [gradients],
                    [None],
                    lr=rate,
                    weight_decay=self._decay,
                    momentum=0.0,
                    dampening=0.0,
                    nesterov=False,
                    maximize=False,
                    fused=self._fused,
                )
            case OptimizerKind.ROWWISE_ADAGRAD:  # element-wise here: the matrix of an MLP is not a set of rows
                adagrad(
                    [self._parameters],
                    [gradients],
                    [state["sum"]],
                    [state["step"]],
                    lr=rate,
                    weight_decay=self._decay,
                    lr_decay=0.0,
                    eps=spec.epsilon,
                    maximize=False,
                    fused=self._fused,
                )
            case OptimizerKind.ADAM:
                adam(
                    [self._parameters],
                    [gradients],
                    [state["exp_avg"]],
                    [state["exp_avg_sq"]],
                    [],
                    [state["step"]],
                    amsgrad=False,
                    beta1=spec.beta1,
                    beta2=spec.beta2,
                    lr=rate,
                    weight_decay=self._decay,
                    eps=spec.epsilon,
                    maximize=False,
                    fused=self._fused,
                )


def clip(gradients: Tensor, norm: float) -> None:
    """Scales `gradients`, float32 [P], down to at most a norm, in place, as torch.nn.utils.clip_grad_norm_ does."""
    gradients.mul_((norm / (gradients.norm() + 1e-6)).clamp(max=1.0))


def _on_host(tensors: Mapping[str, Tensor]) -> dict[str, NDArray[Any]]:
    return {name: values.detach().cpu().numpy() for name, values in tensors.items()}


def _npz(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def _of_shape(arrays: Mapping[str, NDArray[Any]], name: str, like: Tensor) -> Tensor:
    saved = arrays.get(name)
    if saved is None or saved.shape != tuple(like.shape):
        raise FailedPrecondition(f"the checkpoint does not hold {name} of this model, {tuple(like.shape)} values")
    return torch.from_numpy(saved)
