"""Flights as samples of several tables of their own dimensions and optimizers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from esd.data import Dataset
from esd.data.dataset import columns_of
from esd.data.derived import DerivedDataset
from esd.run.options import RunOptions
from esd.services.domain.batches import SampleBatch
from esd.services.domain.features import Feature, Pooling
from esd.services.domain.ids import in_table
from esd.services.domain.jobs import JobSpec
from esd.services.domain.tables import OptimizerKind, OptimizerSpec, TableSpec

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
        lengths = np.array([[1] * len(self._others) + [2]], np.uint32)
        of_features = np.array([feature.table for feature in self.features], np.uint64)
        for batch in self._source:
            ids = batch.by_field[:, [*self._others, *self._airports]].reshape(-1)
            listed = replace(batch, ids=ids, lengths=np.repeat(lengths, len(batch), axis=0), columns=None)
            yield replace(listed, ids=in_table(ids, listed.of_ids(of_features))).named(columns_of(self))


@dataclass(frozen=True, slots=True)
class TabledOptions(RunOptions):
    """Options of a run over several tables: dimension, optimizer, time to live and admission of each."""

    specs: tuple[tuple[int, OptimizerSpec], ...] = ()
    ttls: tuple[int, ...] = ()
    afters: tuple[int, ...] = ()

    def open_all(self, uri: str, batch_size: int) -> Dataset:
        return TabledFlights(RunOptions.open_all(self, uri, batch_size), len(self.specs))

    def job(self, **given: Any) -> JobSpec:
        first = RunOptions.job(self, **given | {"features": (Feature("any"),)})
        tables = [
            TableSpec(first.table.further(str(number)), dimension, optimizer, self.seed + number, init_scale=0.2)
            for number, (dimension, optimizer) in enumerate(self.specs)
        ]
        tables[0] = replace(tables[0], name=first.table.name)
        own = {"tables": tuple(tables), "features": given["features"]}
        return replace(first, **own, row_ttls=self.ttls, admit_afters=self.afters)
