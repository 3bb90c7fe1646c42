"""How large caches and batches should be: the access table, its shapes, the equations for n workers, and the search."""

import math

import numpy as np
import pytest

from esd.dispatcher.core.planner import Planner
from esd.dispatcher.simulator.simulate import trace_batches
from esd.dispatcher.simulator.sizing.access import AccessTable
from esd.dispatcher.simulator.sizing.coherence import expected_traffic
from esd.dispatcher.simulator.sizing.scars import expected_distinct
from esd.dispatcher.simulator.sizing.search import SizeSearch, Trial
from esd.dispatcher.simulator.sizing.shapes import fit_shapes
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import InvalidArgument, ResourceExhausted
from esd.services.domain.ids import in_table
from esd.services.domain.tables import OptimizerSpec, TableSpec

FIELDS, SAMPLES = 4, 24_000


@pytest.fixture(scope="module")
def trace():
    """Independent samples: ids of a field follow Zipf's law, as no two fields share them."""
    rng, rows = np.random.default_rng(7), 3000
    weights = 1.0 / np.arange(1, rows + 1) ** 0.9
    columns = [rng.choice(rows, SAMPLES, p=weights / weights.sum()) + field * rows for field in range(FIELDS)]
    return np.stack(columns, axis=1).astype(np.uint64)


def test_a_table_counts_every_lookup():
    ids = np.array([[1, 2], [1, 3], [9, 1], [9, 2]], np.uint64)
    for size in (1, 3, 4):
        table = AccessTable.of(trace_batches(ids, size))
        assert (table.samples, table.counts.tolist()) == (4, [3, 2, 2, 1])
        assert table.popularity.tolist() == [0.75, 0.5, 0.5, 0.25]
        assert table.lookups_per_sample == 2
    assert [table.rows_for(share) for share in (0.3, 0.6, 0.99)] == [1, 2, 4]
    with pytest.raises(InvalidArgument, match="no samples"):
        AccessTable.of([])


@pytest.mark.parametrize(
    ("name", "parameter", "weights"),
    [
        ("zipf", 1.3, lambda ranks: ranks**-1.3),
        ("exponential", 80.0, lambda ranks: np.exp(-ranks / 80)),
        ("half-normal", 200.0, lambda ranks: np.exp(-0.5 * (ranks / 200) ** 2)),
    ],
)
def test_the_shape_that_drew_the_rows_is_found(name, parameter, weights):
    expected = weights(np.arange(1, 1001))
    counts = np.sort(np.random.default_rng(1).poisson(200_000 * expected / expected.sum()))[::-1]
    closest, *others = fit_shapes(counts)
    assert closest.name == name
    assert closest.parameter == pytest.approx(parameter, rel=0.03)
    assert closest.distance < 0.02 < min(shape.distance for shape in others)


@pytest.mark.parametrize("workers", [1, 3, 6])
@pytest.mark.parametrize("cache_rows", [700, 2500, 12_000])
def test_the_equations_expect_what_simulation_counts(make_job, trace, workers, cache_rows):
    """Random dispatch of independent samples; equation 6 alone is far below where copies go stale."""
    batch = 40
    job = make_job(workers=workers, batch_size=batch * workers, fields=FIELDS, mechanism="random", policy="emark")
    planner = Planner(job, [1e6] * workers, [cache_rows] * workers)
    batches = list(trace_batches(trace, job.batch_size))
    decisions = [planner.plan(each) for each in batches][len(batches) // 2 :]
    counts = sum(decision.columns.counts for decision in decisions).sum(axis=1) / len(decisions) / workers
    table = AccessTable.of(batches)
    expected = expected_traffic(table.popularity, batch, workers, cache_rows)
    assert expected.trained.sum() == pytest.approx(expected_distinct(table.popularity, batch))
    pulls, row_pushes, gradient_pushes = counts[0], counts[1] + counts[3], counts[2] + counts[4]
    near = 0.05 * expected.trained.sum()
    assert expected.pulls.sum() == pytest.approx(pulls, abs=near)
    assert expected.gradient_pushes.sum() == pytest.approx(gradient_pushes, abs=near)
    if cache_rows * workers < 12_000:  # else few rows leave the caches in a stream as short as this
        assert expected.row_pushes.sum() == pytest.approx(row_pushes, abs=near)
    if workers > 1:
        assert expected.trained[cache_rows:].sum() < 0.6 * counts[0]


def test_one_worker_that_caches_everything_moves_nothing():
    traffic = expected_traffic(np.array([1.0, 0.5, 0.01]), 10, 1, 3)
    assert traffic.bytes_by_row(100, 60).tolist() == pytest.approx([0, 0, 0], abs=1e-9)


def test_a_row_that_all_samples_have_is_pulled_and_pushed_by_all():
    """Each of four workers pulls it and pushes a partial gradient, with any cache."""
    traffic = expected_traffic(np.array([1.0]), 8, 4, 1)
    assert (traffic.pulls[0], traffic.row_pushes[0], traffic.gradient_pushes[0]) == (1, 0, 1)
    assert traffic.bytes_by_row(100, 60).tolist() == [160]


class Landscape:
    """Seconds of a sample that are least at 128 samples; caches beyond 3,000 rows gain nothing."""

    least_rows = 10

    def __init__(self):
        self.simulated = []

    def __call__(self, batch, cache_rows):
        assert (batch, cache_rows) not in self.simulated
        self.simulated.append((batch, cache_rows))
        if cache_rows < self.least_rows * batch:
            raise ResourceExhausted("too small")
        seconds = abs(np.log2(batch) - 7) + 1000 / min(cache_rows, 3000)
        return Trial(batch, cache_rows, seconds, seconds, seconds, 0.0, 0.0)


@pytest.mark.parametrize("start", [16, 128, 512])
def test_the_search_finds_the_best_batch_and_the_fewest_rows(start):
    landscape = Landscape()
    search = SizeSearch(lambda batch: 20_000 - 10 * batch, lambda batch, _: abs(batch - start), landscape)
    best = search.run([16, 32, 64, 128, 256, 512])
    assert best.batch == 128
    assert 2800 <= best.cache_rows <= 3750
    assert len(landscape.simulated) <= 16


def test_batches_whose_rows_do_not_fit_are_left_out():
    landscape = Landscape()
    search = SizeSearch(lambda batch: 700 - batch, lambda batch, _: -batch, landscape)
    assert search.run([16, 32, 64, 128, 256, 1024]).batch == 32
    for room in (lambda batch: 159, lambda batch: -batch):  # of rows that an iteration needs, or of any
        with pytest.raises(ResourceExhausted, match="16 samples per worker do not fit the memory"):
            SizeSearch(room, lambda batch, _: -batch, Landscape()).run([16, 32])


def test_rows_of_twice_the_size_need_twice_the_room() -> None:
    """With some rows larger than others, more is pulled into the same room than if all were as the smallest."""
    popularity = 1 / np.arange(2, 400, dtype=np.float64)

    def pulls(cached: float, sizes: np.ndarray | None = None) -> float:
        return float(expected_traffic(popularity, 16, 1, cached, sizes).pulls.sum())

    assert pulls(300, np.full(398, 2.0)) == pytest.approx(pulls(150))
    some = np.where(np.arange(398) % 2, 1.0, 3.0)
    assert pulls(150) < pulls(250, some) < pulls(100)


def test_rows_are_counted_by_table() -> None:
    """Their ids tell it where there are several; the room of all is counted in rows of the first."""
    first, second = (np.arange(each, dtype=np.uint64) for each in (3, 5))
    column = np.concatenate([in_table(first, 0), in_table(second, 1), in_table(second, 1)])
    batch = SampleBatch.of_fields(column[:, None], np.zeros((13, 0), np.float32), np.zeros(13, np.float32))
    table = AccessTable.of([batch], tables=2)
    assert (table.counts.tolist(), table.tables.tolist()) == ([2] * 5 + [1] * 3, [1] * 5 + [0] * 3)
    specs = [TableSpec(name, dimension, OptimizerSpec(), 0, 0.1) for name, dimension in (("a", 8), ("b", 32))]
    ratio = specs[1].row_transfer_bytes / specs[0].row_transfer_bytes
    assert table.room(specs) == math.ceil(3 + 5 * ratio)
    assert AccessTable.of([batch]).tables.tolist() == [0] * 8
