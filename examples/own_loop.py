"""A training loop of one's own: a plain module, loss and optimizer of torch, over embeddings that ESD brings.

    export ESD_WORKER_DISPATCHER=127.0.0.1:50051 ESD_WORKER_LINK=100m ESD_WORKER_CACHE_ROWS=8000
    ESD_WORKER_NAME=edge-1 python3 -m examples.own_loop

It trains jobs with three features whose embeddings have 8 values, two dense features and one label. Start it once for
each worker of the job. `esd.testing.conformance` shows that it trains the model of one machine, through evictions, a
kill and a recovery (tests/integration/test_conformance.py).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

import esd


class Net(nn.Module):
    """An MLP over three embeddings of 8 values and two dense features."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3 * 8 + 2, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, embeddings: Mapping[str, Tensor], dense: Tensor) -> Tensor:
        """Returns logits, float32 [m, 1]."""
        logits: Tensor = self.layers(torch.cat((*embeddings.values(), dense), dim=1))
        return logits


def new_net() -> Net:
    """Builds the net, with the same parameters on every worker."""
    torch.manual_seed(7)
    return Net()


def train() -> None:
    """Trains one job to its end. The settings of the worker are in the environment."""
    net = new_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with esd.Session(model=net, optimizer=optimizer) as session:
        for step in session:
            outputs = net(step.embeddings, step.dense)
            losses = binary_cross_entropy_with_logits(outputs, step.labels, reduction="none")
            step.backward(losses, scores=outputs.sigmoid())
            step.optimise()


if __name__ == "__main__":
    train()
