"""`python -m tests.support.broken_trainers MISTAKE`: the loop of examples/own_loop.py with a mistake in it."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, mse_loss

import esd
from examples.own_loop import new_net


def right(net: nn.Module, step: esd.Step) -> Tensor:
    outputs: Tensor = net(step.embeddings, step.dense)
    losses = binary_cross_entropy_with_logits(outputs, step.labels, reduction="none")
    step.backward(losses, scores=outputs.sigmoid())
    return outputs


def undivided(net: nn.Module, step: esd.Step) -> None:
    """Gradients are not divided by the size of the global batch."""
    outputs = net(step.embeddings, step.dense)
    losses = binary_cross_entropy_with_logits(outputs, step.labels, reduction="none")
    step.backward(losses * step.batch_size, scores=outputs.sigmoid())
    step.optimise()


def divided_by_own_samples(net: nn.Module, step: esd.Step) -> None:
    """Every worker takes the mean of its own samples."""
    outputs = net(step.embeddings, step.dense)
    losses = binary_cross_entropy_with_logits(outputs, step.labels, reduction="none")
    step.backward(losses * step.batch_size / max(1, len(step)) / 2, scores=outputs.sigmoid())
    step.optimise()


def not_optimised(net: nn.Module, step: esd.Step) -> None:
    right(net, step)
    if step.iteration != 3:
        step.optimise()


def other_loss(net: nn.Module, step: esd.Step) -> None:
    outputs = net(step.embeddings, step.dense).sigmoid()
    step.backward(mse_loss(outputs, step.labels, reduction="none"), scores=outputs)
    step.optimise()


def logits_as_scores(net: nn.Module, step: esd.Step) -> None:
    outputs = net(step.embeddings, step.dense)
    losses = binary_cross_entropy_with_logits(outputs, step.labels, reduction="none")
    step.backward(losses, scores=outputs)
    step.optimise()


def mean_loss(net: nn.Module, step: esd.Step) -> None:
    outputs = net(step.embeddings, step.dense)
    step.backward(binary_cross_entropy_with_logits(outputs, step.labels), scores=outputs.sigmoid())


def momentum_aside(net: nn.Module, step: esd.Step) -> None:
    """The loop changes parameters by a count of its own, which is in no checkpoint."""
    right(net, step)
    step.optimise()
    _seen.append(step.iteration)
    with torch.no_grad():
        next(net.parameters()).mul_(1 + 1e-3 * len(_seen))


def another_model(net: nn.Module, step: esd.Step) -> None:
    right(net, step)
    step.optimise()


_seen: list[int] = []
MISTAKES: dict[str, Callable[[nn.Module, esd.Step], None]] = {
    each.__name__: each
    for each in (
        undivided, divided_by_own_samples, not_optimised, other_loss, logits_as_scores, mean_loss, another_model,
        momentum_aside,
    )
}  # fmt: skip


def main() -> None:
    mistake = MISTAKES[sys.argv[1]]
    net = new_net()
    if mistake is another_model:  # on every worker
        with torch.no_grad():
            next(net.parameters()).add_(random.random())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with esd.Session(model=net, optimizer=optimizer) as session:
        for step in session:
            mistake(net, step)


if __name__ == "__main__":
    try:
        main()
    except esd.errors.EsdError as error:
        sys.exit(str(error))
