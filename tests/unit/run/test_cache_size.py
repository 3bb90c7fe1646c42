"""The default number of rows that a worker caches."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from esd.data.dataset import Dataset
from esd.data.distinct import distinct_ids_of
from esd.run import cache_size
from esd.run.events import CacheBounded
from esd.run.options import RunOptions
from esd.run.simulation import simulate_run
from esd.services.domain.batches import SampleBatch
from esd.services.domain.footprint import PLANNED_ROW_BYTES
from esd.services.domain.losses import Loss
from tests.support.graphs import write_sparse_graph


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        ({}, 20),  # two samples of a worker have up to ten ids each; 8% of all would be 16
        ({"batch": 1}, 16),
        ({"batch": 64}, 200),  # all there are
        ({"cache_ratio": 0.08}, 16),  # as somebody wants it
        ({"cache_rows": 7}, 7),
        ({"batch": None, "workloads": "4,0"}, 40),
    ],
)
def test_a_cache_holds_what_an_iteration_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, object], rows: int
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    lists = ["|".join(f"{10 * row + at}" for at in range(9)) for row in range(20)]
    rows_of_file = (f"{row % 2},u{row},{seen}\n" for row, seen in enumerate(lists))
    (tmp_path / "e.csv").write_text("y,u,seen\n" + "".join(rows_of_file))
    (tmp_path / "s.toml").write_text('label = "y"\nids = ["u", { column = "seen", max = 9 }]\n')
    chosen = RunOptions(data=str(tmp_path / "e.csv"), schema=tmp_path / "s.toml", workers=2, batch=2)
    chosen = replace(chosen, **options)
    assert chosen.cache_size(chosen.open(10)).rows == rows


def test_a_default_cache_holds_the_negatives_of_an_iteration_which_may_be_rows_of_no_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    data = f"graph:{write_sparse_graph(tmp_path / 'graph')}?negatives="
    chosen = RunOptions(data=data + "90", workers=2, batch=4, dim=8, model="complex", loss=Loss.OWN)
    assert chosen.cache_size(chosen.open(10)).rows == 3 * 4 + 90
    many = replace(chosen, data=data + "5000", batch=100)
    assert many.cache_size(many.open(10)).rows == 43 + 600, "all rows of samples, and all that can be drawn"
    assert simulate_run(replace(many, iterations=3))["iterations"] == 3


def test_a_default_that_is_bounded_is_reported_and_counts_no_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(cache_size, "DEFAULT_CACHE_BYTES", 2 * 30 * (36 + 16 + PLANNED_ROW_BYTES))
    chosen = RunOptions(data="synthetic:zipf?samples=2000&fields=4&keys=2000", workers=2, batch=4, dim=8)
    dataset = chosen.open(10)
    read = []

    class Watched:
        endless, features, fingerprint = False, dataset.features, dataset.fingerprint

        def __iter__(self) -> Iterator[SampleBatch]:
            for batch in dataset:
                read.append(len(batch))
                yield batch

    size = chosen.cache_size(cast(Dataset, Watched()))
    assert (size.rows, size.bounded) == (30, True)
    assert sum(read) < 1000, "31 rows are 8% of 388 ids"
    assert "each worker caches 30 rows: the default, 8% of the ids, would be more" in str(CacheBounded(size.rows))
    assert distinct_ids_of(dataset) > 500, "a count that has stopped is not remembered"
    assert chosen.cache_size(chosen.open(10)) == size, "also where the number is known"
    assert replace(chosen, cache_ratio=0.5).cache_size(chosen.open(10)).rows > 30, "a ratio that is asked for"
