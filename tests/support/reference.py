"""Single-process training with nothing but torch: what every cluster has to reproduce."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from services.domain.batches import SampleBatch
from services.domain.features import Pooling
from services.domain.ids import mix64
from services.domain.jobs import JobSpec, ModelSpec, RowLimitPolicy
from services.domain.tables import OptimizerKind, OptimizerSpec, TableSpec
from worker.models import build_model, inputs_of


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """Rows that were trained (ids ascending), how often, and the dense parameters by name."""

    ids: NDArray[np.uint64]
    rows: NDArray[np.float32]
    versions: NDArray[np.int64]
    dense: dict[str, NDArray[np.float32]]
    scores: NDArray[np.float64]  # predicted before each sample was trained, in stream order


def initial_rows(table: TableSpec, ids: NDArray[np.uint64]) -> NDArray[np.float32]:
    """Initial values [r, D], by the documented formula."""
    golden = 0x9E3779B97F4A7C15
    seed = mix64(np.array([(table.seed + golden) % 2**64], np.uint64))
    columns = np.arange(1, table.dimension + 1, dtype=np.uint64) * np.uint64(golden)
    bits = mix64(mix64(ids ^ seed)[:, None] + columns[None, :])
    uniform = (bits >> np.uint64(40)).astype(np.float64) * 2.0**-24
    return ((2 * uniform - 1) * np.float64(np.float32(table.init_scale))).astype(np.float32)


def by_feature(job: JobSpec, rows: torch.Tensor) -> dict[str, torch.Tensor]:
    """Embeddings [m, D] by the name of the feature, of rows [m, F, D]."""
    return {feature.name: rows[:, field] for field, feature in enumerate(inputs_of(job).features)}


def embeddings_of(job: JobSpec, batch: SampleBatch, rows: torch.Tensor) -> dict[str, torch.Tensor]:
    """What a model gets of the rows [N, D] of a batch's ids; lists are pooled sample by sample."""
    if batch.lengths is None:
        return by_feature(job, rows.view(len(batch), len(job.features), -1))
    lists = iter(torch.split(rows, batch.lengths.reshape(-1).tolist()))
    pooled: dict[str, list[torch.Tensor]] = {feature.name: [] for feature in job.features}
    for _ in range(len(batch)):
        for feature in job.features:
            of_sample = next(lists)
            share = max(1, len(of_sample)) if feature.pooling is Pooling.MEAN else 1
            pooled[feature.name].append(of_sample.sum(dim=0) / share)
    return {name: torch.stack(each) for name, each in pooled.items()}


def train_reference(
    job: JobSpec, batches: Iterable[SampleBatch], positions: Sequence[NDArray[np.int64]] | None = None
) -> TrainedModel:
    """Trains the global batches in order in this process; `positions` tells where each sample of them stands.

    With `job.at_max_rows` FORGET, rows leave before an iteration that brings too many (docs/semantics.md).
    """
    torch.manual_seed(0)
    stream = list(batches)
    ids = np.unique(np.concatenate([batch.ids.ravel() for batch in stream]))
    embedding = nn.Embedding(len(ids), job.table.dimension, sparse=True)
    with torch.no_grad():
        embedding.weight.copy_(torch.from_numpy(initial_rows(job.table, ids)))
    model = build_model(job)
    train_rows, states = _row_optimizer(job.table.optimizer, embedding)
    train_dense = _dense_optimizer(job.model, model)
    versions = np.zeros(len(ids), np.int64)
    last_use = np.zeros(len(ids), np.int64)
    scores = []
    for iteration, batch in enumerate(stream):
        index = np.searchsorted(ids, batch.ids)
        if job.at_max_rows is RowLimitPolicy.FORGET:
            trained = versions > 0
            trained[index] = False
            excess = int(trained.sum()) + len(np.unique(index)) - job.max_rows
            oldest = sorted(np.flatnonzero(trained).tolist(), key=lambda at: (last_use[at], ids[at]))
            gone = oldest[: max(0, excess)]
            with torch.no_grad():
                embedding.weight[gone] = torch.from_numpy(initial_rows(job.table, ids[gone]))
                for state in states():
                    state[gone] = 0
            versions[gone] = 0
        last_use[index] = iteration
        versions[np.unique(index)] += 1
        model.zero_grad()
        embedding.zero_grad()
        places = np.arange(len(batch)) if positions is None else positions[iteration]
        model.samples.begin(iteration, places.astype(np.uint32))
        rows = embedding(torch.from_numpy(index))
        logits = model(embeddings_of(job, batch, rows), torch.tensor(batch.dense)).view(-1)
        functional.binary_cross_entropy_with_logits(logits, torch.tensor(batch.labels[:, 0])).backward()  # type: ignore[no-untyped-call]
        scores.append(torch.sigmoid(logits.detach().double()).numpy())
        train_rows(job.table.optimizer.learning_rate * job.schedule.factor(iteration))
        for group in train_dense.param_groups:
            group["lr"] = job.model.dense_optimizer.learning_rate * job.dense_schedule.factor(iteration)
        if job.model.clip_norm:
            nn.utils.clip_grad_norm_(model.parameters(), job.model.clip_norm)
        train_dense.step()
    there = versions > 0
    return TrainedModel(
        ids=ids[there],
        rows=embedding.weight.detach().numpy()[there],
        versions=versions[there],
        dense={name: parameter.detach().numpy() for name, parameter in model.named_parameters()},
        scores=np.concatenate(scores),
    )


def _row_optimizer(
    spec: OptimizerSpec, embedding: nn.Embedding
) -> tuple[Callable[[float], object], Callable[[], list[torch.Tensor]]]:
    """A step at a learning rate, and what gives the tensors that hold state by row."""
    weight = embedding.weight
    match spec.kind:
        case OptimizerKind.SGD:
            return _at_rates(torch.optim.SGD([weight])), list
        case OptimizerKind.ADAM:
            adam = torch.optim.SparseAdam([weight], betas=(spec.beta1, spec.beta2), eps=spec.epsilon)
            return _at_rates(adam), lambda: [
                adam.state[weight][name] for name in ("exp_avg", "exp_avg_sq") if adam.state
            ]
        case OptimizerKind.ROWWISE_ADAGRAD:
            state = torch.zeros(len(weight))

            def step(rate: float) -> None:
                assert weight.grad is not None
                gradient = weight.grad.coalesce()
                rows, values = gradient.indices()[0], gradient.values()
                state[rows] += values.square().mean(dim=1)
                with torch.no_grad():
                    weight[rows] -= rate * values / (state[rows].sqrt() + spec.epsilon)[:, None]

            return step, lambda: [state]


def _at_rates(optimizer: torch.optim.Optimizer) -> Callable[[float], object]:
    def step(rate: float) -> None:
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()

    return step


def _dense_optimizer(asked: ModelSpec, model: nn.Module) -> torch.optim.Optimizer:
    spec, decay = asked.dense_optimizer, asked.weight_decay
    match spec.kind:
        case OptimizerKind.SGD:
            return torch.optim.SGD(model.parameters(), weight_decay=decay)
        case OptimizerKind.ROWWISE_ADAGRAD:
            return torch.optim.Adagrad(model.parameters(), eps=spec.epsilon, weight_decay=decay)
        case OptimizerKind.ADAM:
            betas = spec.beta1, spec.beta2
            return torch.optim.Adam(model.parameters(), betas=betas, eps=spec.epsilon, weight_decay=decay)
