"""The reference of the conformance test: one process, plain torch, no cache and no services."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from esd.native.rows import initialise
from esd.services.domain.batches import SampleBatch
from esd.services.domain.jobs import JobSpec

Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """A trained model.

    Attributes:
        rows: float32 [r, D], of all ids of the stream, ids ascending.
        dense: the parameters by name.
        loss: mean loss of all samples, each before it was trained.
    """

    ids: NDArray[np.uint64]
    rows: NDArray[np.float32]
    dense: dict[str, NDArray[np.float32]]
    loss: float


def train(job: JobSpec, stream: SampleBatch, model: nn.Module, loss: Loss) -> TrainedModel:
    """Trains the global batches of a stream in order, by SGD.

    Args:
        job: with one table, and features that have one id per sample.
        stream: all samples.
        model: as it is at first; it is trained.
        loss: of outputs and labels, float32 [k, 1]: the loss of each sample.
    """
    (table,) = job.tables
    ids, places = np.unique(stream.by_field, return_inverse=True)
    rows = np.empty((len(ids), table.dimension), np.float32)
    initialise(ids, np.zeros(len(ids), np.int64), rows, table.dimension, table.seed, table.init_scale)
    embedding = nn.Embedding(len(ids), table.dimension, _weight=torch.from_numpy(rows))
    optimizer = torch.optim.SGD(
        [
            {"params": list(embedding.parameters()), "lr": table.optimizer.learning_rate},
            {"params": list(model.parameters()), "lr": job.model.dense_optimizer.learning_rate},
        ]
    )
    total = 0.0
    for begin in range(0, len(stream), job.batch_size):
        batch = stream[begin : begin + job.batch_size]
        vectors = embedding(torch.from_numpy(places.reshape(stream.by_field.shape)[begin : begin + job.batch_size]))
        labels = torch.from_numpy(batch.labels)
        named = {feature.name: vectors[:, at] for at, feature in enumerate(job.features)}
        losses = loss(model(named, torch.from_numpy(batch.dense)).view_as(labels), labels)
        total += losses.detach().double().sum().item()
        optimizer.zero_grad()
        torch.autograd.backward(losses.mean())
        optimizer.step()
    dense = {name: values.detach().numpy() for name, values in model.named_parameters()}
    return TrainedModel(ids, embedding.weight.detach().numpy(), dense, total / len(stream))
