"""Losses by name: the meaning of a model's outputs, and their scores for the metrics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from esd.services.domain.losses import Loss


@dataclass(frozen=True, slots=True)
class LossFunction:
    """A loss of each single output; all tensors are float32 [m, L].

    Attributes:
        losses: computes losses of outputs and labels.
        scores: computes scores of outputs, in 0..1; a larger score means a likelier label of 1.
    """

    losses: Callable[[Tensor, Tensor], Tensor]
    scores: Callable[[Tensor], Tensor]


def _bce(logits: Tensor, labels: Tensor) -> Tensor:
    return functional.binary_cross_entropy_with_logits(logits, labels, reduction="none")


def _mse(values: Tensor, labels: Tensor) -> Tensor:
    return functional.mse_loss(values, labels, reduction="none")


def _poisson(log_rates: Tensor, labels: Tensor) -> Tensor:
    return functional.poisson_nll_loss(log_rates, labels, reduction="none")


def _hinge(margins: Tensor, labels: Tensor) -> Tensor:
    return (1 - (2 * labels - 1) * margins).relu()


LOSSES = {
    Loss.BCE: LossFunction(_bce, torch.sigmoid),
    Loss.MSE: LossFunction(_mse, lambda values: values.clamp(0, 1)),
    # The probability of at least one event at this rate.
    Loss.POISSON: LossFunction(_poisson, lambda log_rates: -torch.expm1(-log_rates.exp())),
    Loss.HINGE: LossFunction(_hinge, torch.sigmoid),
}
