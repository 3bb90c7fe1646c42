"""The rows of a run against exact counts: of plain sets, and of the dispatcher's own planner under its rules."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from esd.advice.row_counts import RowCounts, count_rows
from esd.advice.sizing import Profile
from esd.dispatcher.core.planner import Planner
from esd.run.options import RunOptions
from esd.run.stream import global_batches
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.jobs import JobSpec, RowLimitPolicy
from esd.services.domain.losses import Loss
from tests.support.graphs import write_sparse_graph

SAMPLES, BATCH = 12_000, 32
RUN = RunOptions(data=f"synthetic:zipf?samples={SAMPLES}&keys=9000&fields=4", workers=2, batch=BATCH // 2, dim=8)


def job_of(chosen: RunOptions) -> JobSpec:
    return Profile.of(chosen, 1000).job(chosen)


def counted(chosen: RunOptions, count: str | None = None, kept_iterations: float = 0) -> RowCounts:
    return count_rows(chosen, job_of(chosen), kept_iterations, count)


def batches(chosen: RunOptions) -> list[SampleBatch]:
    return list(global_batches(chosen.open(1000), BATCH))


def distinct(samples: Iterable[SampleBatch]) -> set[int]:
    return {row for batch in samples for row in batch.ids.tolist()}


def test_all_rows_of_small_data_are_counted_exactly() -> None:
    counts = counted(RUN)
    rows = len(distinct(batches(RUN)))
    assert (counts.samples, counts.total, counts.whole) == (SAMPLES, SAMPLES, True)
    (table,) = counts.tables
    assert (table.ids, table.rows, table.expected, table.error) == (rows, rows, rows, 0.0)
    assert counts.rows == rows
    assert counts.as_json()["tables"][0]["rows"] == rows


def test_an_epoch_brings_no_new_rows_and_is_not_read_again() -> None:
    once, thrice = counted(RUN), counted(replace(RUN, epochs=3, shuffle=100))
    assert thrice.tables == once.tables
    assert thrice.samples == SAMPLES
    assert counted(replace(RUN, epochs=2, admit_after=2)).samples == 2 * SAMPLES, "which ids are admitted depends on it"


def test_rows_of_negatives_are_counted_as_the_dispatcher_draws_them(tmp_path: Path) -> None:
    """Most of them are of no sample, and every epoch draws others."""
    graph = write_sparse_graph(tmp_path)
    chosen = replace(RUN, data=f"graph:{graph}?negatives=5&chunk=20", model="complex", loss=Loss.OWN, epochs=3)
    job = job_of(chosen)
    planner = Planner(job, [1e9, 1e9], [200, 200])
    trained: set[int] = set()
    for batch in batches(chosen):
        trained |= {row for plan in planner.plan(batch).plans for row in plan.unique_ids.tolist()}
    entities, relations = counted(chosen).tables
    assert (entities.rows + relations.rows, relations.rows) == (len(trained), 3)
    assert 300 < entities.rows < 600
    assert counted(replace(chosen, epochs=1)).tables[0].rows < entities.rows


@pytest.mark.parametrize("after", [2, 5])
def test_admitted_ids_are_those_of_so_many_iterations(after: int) -> None:
    chosen = replace(RUN, admit_after=after)
    iterations = Counter(row for batch in batches(RUN) for row in set(batch.ids.tolist()))
    (table,) = counted(chosen).tables
    assert table.rows == sum(times >= after for times in iterations.values())
    assert table.ids == len(iterations) > 1.1 * table.rows


@pytest.mark.parametrize("rules", [{"row_ttl": 40}, {"row_ttl": 16, "admit_after": 2}, {"max_rows": 2000},
                                   {"max_rows": 1500, "row_ttl": 90}])  # fmt: skip
def test_the_rows_that_live_are_those_that_the_dispatcher_knows(rules: dict[str, int]) -> None:
    """The planner decides it and knows every row."""
    policy = RowLimitPolicy.FORGET if "max_rows" in rules else RowLimitPolicy.REFUSE
    chosen = replace(RUN, at_max_rows=policy, **rules)
    planner = Planner(job_of(chosen), [1e8] * 2, [4000] * 2)
    most = 0
    for batch in batches(chosen):
        planner.plan(batch)
        most = max(most, planner.rows)
    assert counted(chosen).rows == pytest.approx(most, rel=0.01)
    assert most < 0.8 * len(distinct(batches(RUN)))


def test_rows_that_a_checkpoint_restores_are_those_of_its_interval() -> None:
    """Rows trained since the oldest checkpoint, and the new ones among them, at the worst moment."""
    kept, seen, changed = 160, batches(RUN), []
    for now in range(16, len(seen) + 1):
        since = max(0, now - kept)
        rows = distinct(seen[since:now])
        changed.append((len(rows), len(rows - distinct(seen[:since]))))
    (table,) = counted(RUN, kept_iterations=kept).tables
    assert table.changed == pytest.approx(max(changed)[0], rel=0.01)
    assert (table.changed, table.new) in changed
    assert table.new < table.changed
    assert counted(RUN).tables[0].changed == 0


def test_rows_that_later_samples_bring_are_extrapolated() -> None:
    stream = replace(RUN, data="synthetic:zipf?samples=40000&skew=1.05&keys=3000000&fields=4")
    whole, part = counted(stream), counted(stream, count="10000")
    assert (part.samples, part.total, part.whole) == (10_000, 40_000, False)
    assert part.tables[0].rows < 0.5 * whole.rows
    assert part.rows == pytest.approx(whole.rows, rel=0.1)
    assert part.growth.after(40_000).sum() == pytest.approx(part.rows, abs=1)


def test_data_without_an_end_are_counted_as_far_as_the_run_goes_or_as_asked() -> None:
    endless = replace(RUN, data="synthetic:zipf?keys=9000&fields=4")
    assert counted(replace(endless, iterations=50)).samples == 50 * BATCH
    assert counted(endless, count="5000").total is None
    assert counted(replace(endless, iterations=400), count="5000").total == 400 * BATCH
    with pytest.raises(InvalidArgument, match="is endless: give --count SAMPLES, or --iterations"):
        counted(endless, count="all")
    for wrong in ("some", "0", "-5", "1e6"):
        with pytest.raises(InvalidArgument, match=f"--count is '{wrong}', it must be all or a number"):
            counted(endless, count=wrong)


def test_data_of_unknown_length_are_counted_to_their_end(tmp_path: Path) -> None:
    file = tmp_path / "ratings.csv"
    lines = [f"{user},{user % 7},{user % 5},0\n" for user in range(500)]
    file.write_text("userId,movieId,rating,timestamp\n" + "".join(lines))
    chosen = replace(RUN, data=f"movielens:{file}")
    counts = counted(chosen)
    assert (counts.samples, counts.total, counts.whole, counts.rows) == (500, 500, True, 507)
    part = counted(chosen, count="100")
    assert (part.samples, part.whole, part.rows) == (100, False, 107 if part.total is None else part.rows)


def test_tables_have_counts_of_their_own_and_rules_of_their_own(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    rows = [f"{user},{item},1\n" for user, item in zip(rng.integers(0, 50, 3000), range(3000), strict=True)]
    (tmp_path / "e.csv").write_text("user,item,clicked\n" + "".join(rows))
    schema = tmp_path / "s.toml"
    schema.write_text(
        'label = "clicked"\nids = ["user", { column = "item", table = "items" }]\n'
        "[tables.items]\ndim = 4\nrow-ttl = 20\n"
    )
    chosen = replace(RUN, data=str(tmp_path / "e.csv"), schema=schema)
    users, items = counted(chosen).tables
    assert (users.rows, users.ids) == (50, 50)
    assert items.ids == 3000
    assert items.rows == 20 * BATCH, "a row lives as long as 20 iterations train others"
