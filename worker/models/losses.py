"""Losses by name: what a model's outputs mean, which labels they are compared with, what the metrics see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from services.domain.jobs import Loss


@dataclass(frozen=True, slots=True)
class LossFunction:
    """A loss of each output by itself; all tensors are float32 [m, L].

    Attributes:
        losses: of outputs and labels.
        scores: of outputs, in 0..1, the larger the likelier is a label of 1.
        accepts: which labels it is for, as a mask.
        labels: the same in words.
    """

    losses: Callable[[Tensor, Tensor], Tensor]
    scores: Callable[[Tensor], Tensor]
    accepts: Callable[[Tensor], Tensor]
    labels: str


def _bce(logits: Tensor, labels: Tensor) -> Tensor:
    return functional.binary_cross_entropy_with_logits(logits, labels, reduction="none")


def _mse(values: Tensor, labels: Tensor) -> Tensor:
    return functional.mse_loss(values, labels, reduction="none")


def _poisson(log_rates: Tensor, labels: Tensor) -> Tensor:
    return functional.poisson_nll_loss(log_rates, labels, reduction="none")


def _hinge(margins: Tensor, labels: Tensor) -> Tensor:
    return (1 - (2 * labels - 1) * margins).relu()


LOSSES = {
    Loss.BCE: LossFunction(_bce, torch.sigmoid, lambda y: (y >= 0) & (y <= 1), "in 0..1"),
    Loss.MSE: LossFunction(_mse, lambda values: values.clamp(0, 1), torch.isfinite, "finite"),
    # The probability that something that happens at this rate happens at all.
    Loss.POISSON: LossFunction(
        _poisson, lambda log_rates: -torch.expm1(-log_rates.exp()), lambda y: y >= 0, "at least 0"
    ),
    Loss.HINGE: LossFunction(_hinge, torch.sigmoid, lambda y: (y == 0) | (y == 1), "0 or 1"),
}
