"""The dispatcher's memory is bounded with default options, however many ids the data have."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from esd.dispatcher.core.planner import Planner
from esd.dispatcher.service.settings import DispatcherSettings
from esd.run.cache_size import DEFAULT_CACHE_BYTES, default_cache
from esd.run.options import RunOptions
from esd.services.domain.batches import SampleBatch
from esd.services.domain.features import numbered_ids
from esd.services.domain.footprint import PLANNED_ROW_BYTES, planned_bytes
from esd.services.domain.jobs import JobSpec
from esd.services.domain.tables import OptimizerKind

WORKERS, FIELDS, SAMPLES = 4, 8, 1024
CACHE_ROWS = 60_000
DISPATCHER_BYTES = 1.5 * 2**30  # that a job of 100 million ids may need with default options
_ELSE = 192 * 2**20  # of a dispatcher: the process, its libraries, plans and samples on their way
_SNAPSHOT_ROW_BYTES = 90
_EMPTY = 10 * 2**20  # of a planner whose batches have 8,192 rows, and of the rows that it has no use for yet


def job(mechanism: str, dim: int = 8) -> JobSpec:
    chosen = RunOptions(workers=WORKERS, batch=SAMPLES // WORKERS, dim=dim, mechanism=mechanism)
    return chosen.job(features=numbered_ids(FIELDS), dense_features=(), parameter_servers=("any",))


def counted(ids: int) -> Callable[[int], int]:
    """Counts that many ids, up to the number that is asked for."""
    return lambda most: min(ids, most)


@pytest.mark.parametrize("mechanism", ["joint", "esd", "random", "laia", "hash"])
def test_a_cached_row_takes_the_planner_at_most_the_bytes_that_bounds_count_with(mechanism: str) -> None:
    planner = Planner(job(mechanism), [1e8] * WORKERS, [CACHE_ROWS] * WORKERS)
    dense, labels = np.empty((SAMPLES, 0), np.float32), np.zeros(SAMPLES, np.float32)
    cached = WORKERS * CACHE_ROWS
    for first in range(0, 3 * cached, SAMPLES * FIELDS):
        ids = np.arange(first, first + SAMPLES * FIELDS, dtype=np.uint64).reshape(SAMPLES, FIELDS)
        planner.plan(SampleBatch.of_fields(ids, dense, labels))
    assert planner.rows >= cached, "the caches are full"
    assert planner._engine.memory_bytes < PLANNED_ROW_BYTES * cached + _EMPTY
    assert len(planner.checkpoint()[1].engine) < _SNAPSHOT_ROW_BYTES * planner.rows


@pytest.mark.parametrize("dim", [1, 8, 128])
@pytest.mark.parametrize("workers", [1, 4, 64])
@pytest.mark.parametrize("ids", [1e6, 1e7, 3e7, 1e8, 1e10])
def test_defaults_keep_the_dispatcher_small(dim: int, workers: int, ids: float) -> None:
    tables = job("joint", dim).tables
    rows = default_cache(counted(int(ids)), 1000, tables, workers).rows
    engine = planned_bytes(tables, [rows] * workers)
    shadows = DispatcherSettings.model_fields["shadow_bytes"].default // engine * engine
    snapshot = _SNAPSHOT_ROW_BYTES * workers * rows
    assert engine + min(shadows, 3 * engine) + snapshot + _ELSE < DISPATCHER_BYTES
    assert workers * rows * tables[0].row_transfer_bytes + engine <= DEFAULT_CACHE_BYTES


def test_the_bound_of_the_default_leaves_room_for_an_iteration_and_counts_small_rows_of_other_tables() -> None:
    (table,) = job("joint").tables
    assert default_cache(counted(10**8), 10**7, (table,), 4).rows == 10**7
    small = replace(table, dimension=1, optimizer=replace(table.optimizer, kind=OptimizerKind.SGD))
    alone, mixed = (default_cache(counted(10**8), 1, tables, 4).rows for tables in ((table,), (table, small)))
    assert mixed < 0.6 * alone, "a cache holds more rows of the small table, and each takes the planner as much"
    assert default_cache(counted(10**6), 1, (table,), 4).rows == 80_000, "a small table has its share"
