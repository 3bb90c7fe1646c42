"""Optimizers of the dense parameters: torch's own steps, on one flat vector.

The steps are called as functions. The classes of torch.optim would import torch's compiler into every worker, which
took two of the five seconds of its start, and of every return after a failure.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim.adagrad import adagrad
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from services.domain.tables import OptimizerKind, OptimizerSpec


class DenseOptimizer:
    """Trains a vector of parameters.

    Attributes:
        state: what has to be kept of it, by name: float32 [P] on the parameters' device, and the count of steps,
            float32 [], on the host as torch wants it.
    """

    def __init__(self, spec: OptimizerSpec, parameters: Tensor) -> None:
        """`parameters`, float32 [P], are trained in place."""
        self._spec = spec
        self._parameters = parameters
        self.state = {name: torch.zeros_like(parameters) for name in _MOMENTS[spec.kind]}
        if self.state:
            self.state["step"] = torch.zeros(())

    @torch.no_grad()
    def step(self, gradients: Tensor) -> None:
        """One step along `gradients`, float32 [P]."""
        spec, state = self._spec, self.state
        match spec.kind:
            case OptimizerKind.SGD:
                sgd(
                    [self._parameters],
                    [gradients],
                    [None],
                    lr=spec.learning_rate,
                    weight_decay=0.0,
                    momentum=0.0,
                    dampening=0.0,
                    nesterov=False,
                    maximize=False,
                )
            case OptimizerKind.ROWWISE_ADAGRAD:  # element-wise here: a matrix of an MLP is not a set of rows
                adagrad(
                    [self._parameters],
                    [gradients],
                    [state["sum"]],
                    [state["step"]],
                    lr=spec.learning_rate,
                    weight_decay=0.0,
                    lr_decay=0.0,
                    eps=spec.epsilon,
                    maximize=False,
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
                    lr=spec.learning_rate,
                    weight_decay=0.0,
                    eps=spec.epsilon,
                    maximize=False,
                )


_MOMENTS = {
    OptimizerKind.SGD: (),
    OptimizerKind.ROWWISE_ADAGRAD: ("sum",),
    OptimizerKind.ADAM: ("exp_avg", "exp_avg_sq"),
}
