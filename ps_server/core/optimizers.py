"""Optimizer steps on blocks of rows, by the native kernels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from esd_native import rows as native
from services.domain.tables import OptimizerKind, OptimizerSpec


def apply(
    optimizer: OptimizerSpec, rows: NDArray[np.float32], gradients: NDArray[np.float32], steps: NDArray[np.int64]
) -> None:
    """One optimizer step on rows [r, W], in place; gradients [r, D], steps [r]. Formulas: OptimizerSpec."""
    if optimizer.kind is OptimizerKind.SGD:
        native.sgd(rows, gradients, optimizer.learning_rate)
    elif optimizer.kind is OptimizerKind.ROWWISE_ADAGRAD:
        native.rowwise_adagrad(rows, gradients, optimizer.learning_rate, optimizer.epsilon)
    else:
        native.adam(
            rows, gradients, steps, optimizer.learning_rate, optimizer.epsilon, optimizer.beta1, optimizer.beta2
        )
