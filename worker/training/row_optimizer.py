"""The optimizers of embedding rows, for the rows that only this worker trains.

The formulas are those of services.domain.tables; the parameter server has the same ones for split rows.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from services.domain.tables import OptimizerKind, OptimizerSpec


def updated_rows(rows: Tensor, gradients: Tensor, optimizer: OptimizerSpec, step: int) -> Tensor:
    """Takes one optimizer step on each row.

    Args:
        rows: float32 [r, W], D values followed by the optimizer state.
        gradients: float32 [r, D].
        optimizer: the table's.
        step: iteration + 1.

    Returns:
        float32 [r, W].
    """
    dimension = gradients.shape[1]
    values, state = rows[:, :dimension], rows[:, dimension:]
    match optimizer.kind:
        case OptimizerKind.SGD:
            return values - optimizer.learning_rate * gradients
        case OptimizerKind.ROWWISE_ADAGRAD:
            return _rowwise_adagrad(values, state, gradients, optimizer)
        case OptimizerKind.ADAM:
            return _adam(values, state, gradients, optimizer, step)


def _rowwise_adagrad(values: Tensor, total: Tensor, gradients: Tensor, optimizer: OptimizerSpec) -> Tensor:
    total = total + gradients.square().mean(dim=1, keepdim=True)
    values = values - optimizer.learning_rate * gradients / (total.sqrt() + optimizer.epsilon)
    return torch.cat((values, total), dim=1)


def _adam(values: Tensor, moments: Tensor, gradients: Tensor, optimizer: OptimizerSpec, step: int) -> Tensor:
    first, second = moments.chunk(2, dim=1)
    first = first + (1 - optimizer.beta1) * (gradients - first)
    second = second + (1 - optimizer.beta2) * (gradients.square() - second)
    correction = math.sqrt(1 - optimizer.beta2**step) / (1 - optimizer.beta1**step)
    values = values - optimizer.learning_rate * correction * (first / (second.sqrt() + optimizer.epsilon))
    return torch.cat((values, first, second), dim=1)
