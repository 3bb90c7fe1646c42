"""The optimizers of dense parameters: those that a job names, and any of torch.optim."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.optim.adagrad import adagrad
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from esd.services.domain.errors import FailedPrecondition, InvalidArgument
from esd.services.domain.jobs import ModelSpec
from esd.services.domain.tables import OptimizerKind
from esd.worker.training.dense import of_shape
from esd.worker.training.summed_gradients import SummedGradients

_MOMENTS = {
    OptimizerKind.SGD: (),
    OptimizerKind.ROWWISE_ADAGRAD: ("sum",),
    OptimizerKind.ADAM: ("exp_avg", "exp_avg_sq"),
}


class JobOptimizer:
    """Trains parameters as a job says, with torch's own steps. They become views of one flat vector of P floats.

    So one call trains all of them. The steps are called as functions, on a CPU as the fused ones, which pass over the
    vectors once. The classes of torch.optim would import torch's compiler into every worker, which took two of the five
    seconds of its start, and of every return after a failure.

    Args:
        buckets: the parameters, on their device, and their gradients.
        spec: which optimizer, its constants, how weights decay and gradients are clipped.
        rate_of: the learning rate of an iteration.

    Its state is float32 [P] for each moment, on the parameters' device, and the count of steps, float32 [], on the host
    as torch wants it.
    """

    def __init__(self, buckets: SummedGradients, spec: ModelSpec, rate_of: Callable[[int], float]) -> None:
        self._spec = spec
        self._rate_of = rate_of
        self._gradients = buckets.flat
        self._parameters = torch.empty_like(buckets.flat)
        sizes = [parameter.numel() for parameter in buckets.parameters]
        for parameter, place in zip(buckets.parameters, torch.split(self._parameters, sizes), strict=True):
            parameter.data = place.view_as(parameter).copy_(parameter.detach())
        self._fused = True if self._parameters.device.type == "cpu" else None
        self._state = {name: torch.zeros_like(self._parameters) for name in _MOMENTS[spec.dense_optimizer.kind]}
        if self._state:
            self._state["step"] = torch.zeros(())

    @property
    def state(self) -> Mapping[str, Tensor]:
        """See ParametersOptimizer."""
        return self._state

    def show(self) -> None:
        """See ParametersOptimizer."""

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """See ParametersOptimizer."""
        for name, values in self._state.items():
            values.copy_(of_shape(arrays, name, values))

    @torch.no_grad()
    def step(self, iteration: int) -> None:
        """See ParametersOptimizer."""
        gradients, rate, decay = self._gradients, self._rate_of(iteration), self._spec.weight_decay
        if self._spec.clip_norm:
            clip(gradients, self._spec.clip_norm)
        spec, state = self._spec.dense_optimizer, self._state
        match spec.kind:
            case OptimizerKind.SGD:
                sgd(
                    [self._parameters],
                    [gradients],
                    [None],
                    lr=rate,
                    weight_decay=decay,
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
                    weight_decay=decay,
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
                    weight_decay=decay,
                    eps=spec.epsilon,
                    maximize=False,
                    fused=self._fused,
                )


def clip(gradients: Tensor, norm: float) -> None:
    """Scales `gradients`, float32 [P], down to at most a norm, in place, as torch.nn.utils.clip_grad_norm_ does."""
    gradients.mul_((norm / (gradients.norm() + 1e-6)).clamp(max=1.0))


class TorchOptimizer:
    """Trains parameters by an optimizer of torch, whose hyperparameters and state are in checkpoints.

    Args:
        buckets: the parameters and their gradients.
        optimizer: of parameters that are all among these.

    Raises:
        InvalidArgument: a parameter of the optimizer is none of the model's, or none that has a gradient.
    """

    def __init__(self, buckets: SummedGradients, optimizer: torch.optim.Optimizer) -> None:
        self._buckets = buckets
        self._optimizer = optimizer
        known = {id(parameter) for parameter in buckets.parameters}
        trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        strangers = sum(id(parameter) not in known for parameter in trained)
        if strangers:
            raise InvalidArgument(
                f"{strangers} of the optimizer's {len(trained)} parameters are none of the model's that have a gradient"
            )

    @property
    def state(self) -> Mapping[str, Tensor]:
        """`of/PARAMETER/KEY` for each parameter in the order of the optimizer, `group/GROUP/KEY` for each group."""
        whole = self._optimizer.state_dict()
        found = {
            f"of/{number}/{key}": torch.as_tensor(value)
            for number, kept in whole["state"].items()
            for key, value in kept.items()
            if value is not None
        }
        for number, group in enumerate(whole["param_groups"]):
            found |= {
                f"group/{number}/{key}": torch.as_tensor(value, dtype=torch.float64)
                for key, value in group.items()
                if _is_number(value)
            }
        return found

    def show(self) -> None:
        """Gives every parameter its gradient, where clipping and the optimizer look for it."""
        for parameter, gradient in zip(self._buckets.parameters, self._buckets.places, strict=True):
            parameter.grad = gradient

    def step(self, iteration: int) -> None:  # noqa: ARG002 - the optimizer knows no iterations
        """See ParametersOptimizer."""
        self._optimizer.step()
        for parameter in self._buckets.parameters:  # the next backward pass must not add to what was summed
            parameter.grad = None

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """See ParametersOptimizer."""
        whole = self._optimizer.state_dict()
        state: dict[int, dict[str, Any]] = {}
        for name, values in arrays.items():
            kind, number, key = name.split("/", 2)
            if kind == "of":
                state.setdefault(int(number), {})[key] = torch.from_numpy(values.copy())
                continue
            if int(number) >= len(whole["param_groups"]):
                raise FailedPrecondition(f"the checkpoint is one of an optimizer with another group, {number}")
            group = whole["param_groups"][int(number)]
            group[key] = _as(group.get(key), values)
        self._optimizer.load_state_dict({"state": state, "param_groups": whole["param_groups"]})


def _is_number(value: object) -> bool:
    """Returns whether a hyperparameter is one number or several; others are the program's, and do not change."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return len(value) > 0 and all(isinstance(each, float) for each in value)  # `params` are numbers of parameters
    return isinstance(value, float | int | bool) or (isinstance(value, Tensor) and value.numel() == 1)


def _as(like: object, values: NDArray[np.float64]) -> Any:
    """Returns a saved hyperparameter in the type that it has now."""
    if isinstance(like, Tensor):
        return torch.as_tensor(values, dtype=like.dtype)
    found = values.tolist()
    if isinstance(like, tuple):
        return tuple(found)
    return type(like)(found) if isinstance(like, bool | int) else found
