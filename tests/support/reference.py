"""Single-process training with nothing but torch, which every cluster has to reproduce."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from esd.services.domain.batches import SampleBatch
from esd.services.domain.features import Pooling
from esd.services.domain.ids import mix64, parts_of_tables, table_of
from esd.services.domain.jobs import JobSpec, ModelSpec, RowLimitPolicy
from esd.services.domain.tables import OptimizerKind, OptimizerSpec, TableSpec
from esd.worker.models import build_model
from esd.worker.models.inputs import Jagged


@dataclass(frozen=True, slots=True)
class TrainedTable:
    """The rows of a table that were trained, ids ascending, and how often."""

    ids: NDArray[np.uint64]
    rows: NDArray[np.float32]
    versions: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """Tables in order, dense parameters and buffers by name, and the scores of the first label, in stream order."""

    tables: Mapping[str, TrainedTable]
    dense: dict[str, NDArray[np.float32]]
    scores: NDArray[np.float64]  # predicted before each sample was trained
    admitted: int  # ids that were admitted in one of the iterations
    initial_reads: int  # ids that were not, by iteration

    @property
    def ids(self) -> NDArray[np.uint64]:
        """The ids of the first table, as for `rows` and `versions`."""
        return self._first.ids

    @property
    def rows(self) -> NDArray[np.float32]:
        return self._first.rows

    @property
    def versions(self) -> NDArray[np.int64]:
        return self._first.versions

    @property
    def _first(self) -> TrainedTable:
        return next(iter(self.tables.values()))


def by_feature(job: JobSpec, rows: torch.Tensor) -> dict[str, torch.Tensor]:
    """Embeddings [m, D] by the name of the feature, of rows [m, F, D]."""
    return {feature.name: rows[:, at] for at, feature in enumerate(job.features)}


def initial_rows(table: TableSpec, ids: NDArray[np.uint64]) -> NDArray[np.float32]:
    """Initial values [r, D], by the documented formula."""
    golden = 0x9E3779B97F4A7C15
    seed = mix64(np.array([(table.seed + golden) % 2**64], np.uint64))
    columns = np.arange(1, table.dimension + 1, dtype=np.uint64) * np.uint64(golden)
    bits = mix64(mix64(ids ^ seed)[:, None] + columns[None, :])
    uniform = (bits >> np.uint64(40)).astype(np.float64) * 2.0**-24
    return ((2 * uniform - 1) * table.init_scale).astype(np.float32)


class Rows:
    """The rows of one table in training.

    Args:
        spec: the table.
        ids: all that the stream has of it, ascending.
        limit: how many may be trained at a time; those trained longest ago leave. None: any.
        ttl: the last of so many iterations in a row that do not train a row forgets it. 0: none does.
        admit_after: an id is trained from the iteration on that is the N-th to have it.
    """

    def __init__(
        self, spec: TableSpec, ids: NDArray[np.uint64], limit: int | None, ttl: int = 0, admit_after: int = 1
    ) -> None:
        self.spec = spec
        self.ids = ids
        self.versions = np.zeros(len(ids), np.int64)
        self.embedding = nn.Embedding(len(ids), spec.dimension, sparse=True)
        with torch.no_grad():
            self.embedding.weight.copy_(torch.from_numpy(initial_rows(spec, ids)))
        self._limit = limit
        self._ttl = ttl
        self._admit_after = admit_after
        self._iterations = np.zeros(len(ids), np.int64)  # with each id
        self.admitted = 0
        self.initial_reads = 0
        self._last_use = np.zeros(len(ids), np.int64)
        self._train, self._states = _row_optimizer(spec.optimizer, self.embedding)

    def look_up(self, ids: NDArray[np.uint64], iteration: int) -> torch.Tensor:
        """The rows [N, D] of ids that this iteration reads; it trains those that are admitted."""
        places = np.searchsorted(self.ids, ids)
        here = np.unique(places)
        self._iterations[here] += 1
        self.admitted += int((self._iterations[here] == self._admit_after).sum())
        self.initial_reads += int((self._iterations[here] < self._admit_after).sum())
        admitted = np.flatnonzero(self._iterations[places] >= self._admit_after)
        places = places[admitted]
        if self._ttl:
            old = (self.versions > 0) & (self._last_use <= iteration - self._ttl)
            self._forget(np.setdiff1d(np.flatnonzero(old), places))
        if self._limit is not None:
            self._make_room(places, self._limit)
        self._last_use[places] = iteration
        self.versions[np.unique(places)] += 1
        self.embedding.zero_grad()
        rows = torch.from_numpy(initial_rows(self.spec, ids))
        return rows.index_copy(0, torch.from_numpy(admitted), self.embedding(torch.from_numpy(places)))

    def train(self, factor: float) -> None:
        """A step at so many times the learning rate, after which trained rows are scaled down to the largest norm."""
        weight, most = self.embedding.weight, self.spec.optimizer.max_norm
        self._train(self.spec.optimizer.learning_rate * factor)
        if most and weight.grad is not None:
            trained = weight.grad.coalesce().indices()[0]
            with torch.no_grad():
                weight[trained] = torch.renorm(weight[trained], 2, 0, most)

    def trained(self) -> TrainedTable:
        """The parameters that are trained now."""
        there = self.versions > 0
        return TrainedTable(self.ids[there], self.embedding.weight.detach().numpy()[there], self.versions[there])

    def _make_room(self, places: NDArray[np.int64], limit: int) -> None:
        """Makes room for these rows (docs/semantics.md)."""
        trained = self.versions > 0
        trained[places] = False
        excess = int(trained.sum()) + len(np.unique(places)) - limit
        oldest = sorted(np.flatnonzero(trained).tolist(), key=lambda at: (self._last_use[at], self.ids[at]))
        self._forget(np.array(oldest[: max(0, excess)], np.int64))

    def _forget(self, gone: NDArray[np.int64]) -> None:
        """Rows that come back are born with their initial values and no optimizer state."""
        with torch.no_grad():
            self.embedding.weight[gone] = torch.from_numpy(initial_rows(self.spec, self.ids[gone]))
            for state in self._states():
                state[gone] = 0
        self.versions[gone] = 0


def train_reference(
    job: JobSpec, batches: Iterable[SampleBatch], positions: Sequence[NDArray[np.int64]] | None = None
) -> TrainedModel:
    """Trains the global batches in order in this process; `positions` tells where each sample of them stands.

    With `job.at_max_rows` FORGET, rows leave before an iteration that brings too many, and with `job.row_ttls` when
    their time to live is over; with `job.admit_afters` ids read their initial rows at first (docs/semantics.md).
    """
    torch.manual_seed(0)
    stream = list(batches)
    ids = np.unique(np.concatenate([batch.ids for batch in stream]))
    limit = job.max_rows if job.at_max_rows is RowLimitPolicy.FORGET else None
    of_tables = parts_of_tables(ids, len(job.tables))
    ttls = job.row_ttls or (0,) * len(job.tables)
    afters = job.admit_afters or (1,) * len(job.tables)
    tables = [
        Rows(spec, ids[part], limit, ttl, after)
        for spec, part, ttl, after in zip(job.tables, of_tables, ttls, afters, strict=True)
    ]
    model = build_model(job)
    train_dense = _dense_optimizer(job.model, model)
    scores = []
    for iteration, batch in enumerate(stream):
        model.zero_grad()
        places = np.arange(len(batch)) if positions is None else positions[iteration]
        model.samples.begin(iteration, places.astype(np.uint32))
        labels = torch.tensor(batch.labels)
        weights = torch.ones(len(batch)) if batch.weights is None else torch.tensor(batch.weights)
        logits = model(_look_up(job, tables, batch, iteration), torch.tensor(batch.dense)).view_as(labels)
        losses = functional.binary_cross_entropy_with_logits(logits, labels, reduction="none").mean(dim=1)
        torch.autograd.backward((losses * weights).mean())
        scores.append(torch.sigmoid(logits.detach()[:, 0].double()).numpy())
        for table in tables:
            table.train(job.schedule.factor(iteration))
        for group in train_dense.param_groups:
            group["lr"] = job.model.dense_optimizer.learning_rate * job.dense_schedule.factor(iteration)
        if job.model.clip_norm:
            nn.utils.clip_grad_norm_(model.parameters(), job.model.clip_norm)
        train_dense.step()
    return TrainedModel(
        {table.spec.name: table.trained() for table in tables},
        {name: values.numpy() for name, values in model.state_dict().items()},
        np.concatenate(scores),
        sum(table.admitted for table in tables),
        sum(table.initial_reads for table in tables),
    )


def train_in_other_orders(job: JobSpec, batches: Sequence[SampleBatch]) -> Iterator[TrainedModel]:
    """Trains the same batches four times, with other orders of the samples of each, which round sums otherwise."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        orders = [rng.permutation(len(batch)) for batch in batches]
        yield train_reference(job, [batch[order] for batch, order in zip(batches, orders, strict=True)], orders)


def _look_up(job: JobSpec, tables: Sequence[Rows], batch: SampleBatch, iteration: int) -> dict[str, Any]:
    """The input of a model: embeddings by the name of the feature."""
    numbers = table_of(batch.ids) if len(tables) > 1 else np.zeros(len(batch.ids), np.int64)
    ranks = np.empty(len(batch.ids), np.int64)  # of each id among those of its table
    rows = []
    for number, table in enumerate(tables):
        of_table = numbers == number
        ranks[of_table] = np.arange(of_table.sum())
        rows.append(table.look_up(batch.ids[of_table], iteration))
    by_rank = replace(batch, ids=ranks.astype(np.uint64))
    return {
        feature.name: _pooled(
            rows[feature.table][torch.from_numpy(by_rank.ids_of_feature(at).astype(np.int64))],
            None if batch.lengths is None else batch.lengths[:, at].tolist(),
            feature.pooling,
        )
        for at, feature in enumerate(job.features)
    }


def _pooled(rows: torch.Tensor, lengths: list[int] | None, pooling: Pooling) -> torch.Tensor | Jagged:
    """The input of a model for a feature with rows [n, D], which are lists of these lengths, or one row per sample."""
    if lengths is None:
        return rows
    lists = torch.split(rows, lengths)
    if pooling is Pooling.LIST:
        return Jagged(nn.utils.rnn.pad_sequence(list(lists), batch_first=True), torch.tensor(lengths))
    sums = torch.stack([each.sum(dim=0) for each in lists])
    return sums / torch.tensor(lengths).clamp(min=1)[:, None] if pooling is Pooling.MEAN else sums


def _row_optimizer(
    spec: OptimizerSpec, embedding: nn.Embedding
) -> tuple[Callable[[float], object], Callable[[], list[torch.Tensor]]]:
    """A step at a learning rate, and a function that gives the tensors with state by row."""
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
