"""Flights as samples of several tables of their own dimensions and optimizers, and what one process makes of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from esd.cli.options import RunOptions
from services.data import Dataset
from services.data.derived import DerivedDataset
from services.domain.batches import SampleBatch
from services.domain.features import Feature, Pooling
from services.domain.ids import in_table, parts_of_tables
from services.domain.jobs import JobSpec
from services.domain.tables import OptimizerKind, OptimizerSpec, TableSpec
from tests.support.reference import initial_rows
from worker.models import build_model
from worker.models.inputs import Jagged

ADAM = OptimizerSpec(OptimizerKind.ADAM, 0.002)
ADAGRAD = OptimizerSpec(OptimizerKind.ROWWISE_ADAGRAD, 0.05)
SGD = OptimizerSpec(OptimizerKind.SGD, 0.05)

_AIRPORTS = ("origin", "dest")  # of which we make one list


class TabledFlights(DerivedDataset):
    """Flights, whose airports are a list of two ids and whose other fields take turns with the other tables.

    Args:
        flights: as the reader has them.
        tables: how many tables there are; the airports are in the last.
    """

    def __init__(self, flights: Dataset, tables: int) -> None:
        super().__init__(flights)
        names = [feature.name for feature in flights.features]
        self._airports = [names.index(name) for name in _AIRPORTS]
        self._others = [at for at in range(len(names)) if at not in self._airports]
        others = [Feature(names[at], turn % max(1, tables - 1)) for turn, at in enumerate(self._others)]
        self.features = (*others, Feature("airports", tables - 1, Pooling.MEAN, max_length=2))

    @property
    def fingerprint(self) -> str:
        return self._source.fingerprint

    def __iter__(self) -> Iterator[SampleBatch]:
        lengths = np.array([[1] * len(self._others) + [2]], np.uint16)
        of_features = np.array([feature.table for feature in self.features], np.uint64)
        for batch in self._source:
            ids = batch.by_field[:, [*self._others, *self._airports]].reshape(-1)
            listed = replace(batch, ids=ids, lengths=np.repeat(lengths, len(batch), axis=0))
            yield replace(listed, ids=in_table(ids, listed.of_ids(of_features)))


@dataclass(frozen=True, slots=True)
class TabledOptions(RunOptions):
    """Options of a run over several tables: dimension and optimizer of each; the first is that of the options."""

    specs: tuple[tuple[int, OptimizerSpec], ...] = ()

    def open_all(self, uri: str, batch_size: int) -> Dataset:
        return TabledFlights(RunOptions.open_all(self, uri, batch_size), len(self.specs))

    def job(self, **given: Any) -> JobSpec:
        first = RunOptions.job(self, **given | {"features": (Feature("any"),)})
        tables = [
            TableSpec(first.table.further(str(number)), dimension, optimizer, self.seed + number, init_scale=0.2)
            for number, (dimension, optimizer) in enumerate(self.specs)
        ]
        tables[0] = replace(tables[0], name=first.table.name)
        return replace(first, tables=tuple(tables), features=given["features"])


@dataclass(frozen=True, slots=True)
class TrainedTables:
    """By table ids, rows and versions of what was trained, by the names that the export has; and dense parameters."""

    tables: dict[str, dict[str, NDArray[Any]]]
    dense: dict[str, NDArray[np.float32]]


class OneProcess:
    """The rows of one table, trained by the formulas of services/domain/tables.py."""

    def __init__(self, spec: TableSpec, ids: NDArray[np.uint64]) -> None:
        self.spec = spec
        self.ids = ids
        self.rows = torch.from_numpy(initial_rows(spec, ids)).requires_grad_()
        self.versions = np.zeros(len(ids), np.int64)
        self._state = torch.zeros(len(ids), spec.optimizer.state_width(spec.dimension))

    def train(self, trained: NDArray[np.int64], step: int) -> None:
        """Takes a step with the gradient that the rows have, for these rows."""
        assert self.rows.grad is not None
        spec, gradient = self.spec.optimizer, self.rows.grad[trained]
        with torch.no_grad():
            values, state = self.rows[trained], self._state[trained]
            match spec.kind:
                case OptimizerKind.SGD:
                    values -= spec.learning_rate * gradient
                case OptimizerKind.ROWWISE_ADAGRAD:
                    state += gradient.square().mean(dim=1, keepdim=True)
                    values -= spec.learning_rate * gradient / (state.sqrt() + spec.epsilon)
                case OptimizerKind.ADAM:
                    first, second = state.chunk(2, dim=1)
                    first = spec.beta1 * first + (1 - spec.beta1) * gradient
                    second = spec.beta2 * second + (1 - spec.beta2) * gradient.square()
                    correction = (1 - spec.beta2**step) ** 0.5 / (1 - spec.beta1**step)
                    values -= spec.learning_rate * correction * first / (second.sqrt() + spec.epsilon)
                    state = torch.cat((first, second), dim=1)
            self.rows[trained], self._state[trained] = values, state
        self.rows.grad = None
        self.versions[trained] += 1


def train_in_one_process(job: JobSpec, batches: Iterable[SampleBatch]) -> TrainedTables:
    """Trains the global batches in order with torch; dense parameters with Adam, Adagrad or SGD as the job says."""
    stream = list(batches)
    ids = np.unique(np.concatenate([batch.ids for batch in stream]))
    of_tables = parts_of_tables(ids, len(job.tables))
    tables = [OneProcess(spec, ids[part]) for spec, part in zip(job.tables, of_tables, strict=True)]
    model = build_model(job)
    dense = dense_optimizer(model, job.model.dense_optimizer)
    for iteration, batch in enumerate(stream):
        embeddings: dict[str, Any] = {}
        used = [np.empty(0, np.int64)] * len(tables)
        lengths = np.ones((len(batch), job.fields), np.int64) if batch.lengths is None else batch.lengths
        for at, feature in enumerate(job.features):
            table = tables[feature.table]
            places = np.searchsorted(table.ids, batch.ids_of_feature(at))
            used[feature.table] = np.union1d(used[feature.table], places)
            lists = torch.split(functional.embedding(torch.from_numpy(places), table.rows), lengths[:, at].tolist())
            embeddings[feature.name] = _of_lists(lists, feature.pooling)
        labels = torch.tensor(batch.labels)
        logits = model(embeddings, torch.tensor(batch.dense)).view_as(labels)
        losses = functional.binary_cross_entropy_with_logits(logits, labels, reduction="none").mean(dim=1)
        weights = torch.ones(len(batch)) if batch.weights is None else torch.tensor(batch.weights)
        torch.autograd.backward((losses * weights).mean())
        for table, trained in zip(tables, used, strict=True):
            table.train(trained, iteration + 1)
        dense.step()
        dense.zero_grad()
    return TrainedTables(
        {
            each.spec.name: {"ids": each.ids, "rows": each.rows.detach().numpy(), "versions": each.versions}
            for each in tables
        },
        {name: parameter.detach().numpy() for name, parameter in model.named_parameters()},
    )


def _of_lists(lists: Sequence[torch.Tensor], pooling: Pooling) -> torch.Tensor | Jagged:
    """What a model gets of the rows of each sample's list."""
    if pooling is Pooling.LIST:
        lengths = torch.tensor([len(each) for each in lists])
        return Jagged(torch.nn.utils.rnn.pad_sequence(list(lists), batch_first=True), lengths)
    sums = torch.stack([each.sum(dim=0) for each in lists])
    counts = torch.tensor([max(1, len(each)) for each in lists])[:, None]
    return sums / counts if pooling is Pooling.MEAN else sums


def dense_optimizer(model: torch.nn.Module, spec: OptimizerSpec) -> torch.optim.Optimizer:
    """Torch's optimizer of the dense parameters."""
    match spec.kind:
        case OptimizerKind.SGD:
            return torch.optim.SGD(model.parameters(), lr=spec.learning_rate)
        case OptimizerKind.ROWWISE_ADAGRAD:
            return torch.optim.Adagrad(model.parameters(), lr=spec.learning_rate, eps=spec.epsilon)
        case OptimizerKind.ADAM:
            return torch.optim.Adam(model.parameters(), lr=spec.learning_rate, eps=spec.epsilon)
