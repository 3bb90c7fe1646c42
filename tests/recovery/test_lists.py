"""kill -9 of a process of a job whose samples have lists: pooled, and one by one, in tables that they share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from esd.cli import train
from esd.cli.options import RunOptions
from tests.recovery.kills import KILLED_AT, OPTIONS, Killer, assert_same_run, dispatcher, parameter_server, worker

SCHEMA = """
label = ["clicked", "bought"]
weight = "importance"
group = "user"
dense = ["price"]
ids = [
    "user",
    { column = "tags", max = 4, pool = "mean" },
    { column = "item", table = "item" },
    { column = "seen", max = 5, pool = "list", table = "item" },
]
[tables.item]
dim = 3
optimizer = "sgd"
"""


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> RunOptions:
    """A run over as many events as it has iterations, whose lists have 0 to 5 values."""
    rng, rows = np.random.default_rng(8), OPTIONS.iterations * OPTIONS.batch * OPTIONS.workers
    lists = {
        name: [(values * rng.random(n) ** 2).astype(int).tolist() for n in rng.integers(0, longest + 1, rows)]
        for name, values, longest in (("tags", 400, 4), ("seen", 1500, 5))
    }
    events = pa.table(
        {
            "user": (2000 * rng.random(rows) ** 2).astype(int),
            "tags": pa.array(lists["tags"], pa.list_(pa.int64())),
            "item": (1500 * rng.random(rows) ** 2).astype(int),
            "seen": pa.array(lists["seen"], pa.list_(pa.int64())),
            "price": rng.normal(size=rows),
            "importance": rng.choice([0.0, 0.5, 1.0, 3.0], rows),
            "clicked": rng.random(rows) < 0.3,
            "bought": rng.random(rows) < 0.1,
        }
    )
    folder = tmp_path_factory.mktemp("events")
    pyarrow.parquet.write_table(events, folder / "events.parquet")
    (folder / "schema.toml").write_text(SCHEMA)
    return replace(
        OPTIONS,
        data=str(folder / "events.parquet"),
        schema=folder / "schema.toml",
        model="tests.support.list_model:Net",
        iterations=None,
    )


@pytest.fixture(scope="module")
def undisturbed(options: RunOptions, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    path = tmp_path_factory.mktemp("undisturbed")
    return path, train.run(options, store="memory", shards=2, out=path)


@pytest.mark.parametrize("victim", [worker, dispatcher, parameter_server])
def test_a_killed_process_leaves_the_model_of_an_undisturbed_run(options, undisturbed, tmp_path, victim):
    kill = Killer(victim, iteration=KILLED_AT)
    keep = {"store": "memory", "shards": 2, "checkpoint_dir": tmp_path / "kept"}
    result = train.run(options, **keep, out=tmp_path, watch=kill)
    assert kill.killed
    assert result["iterations"] == OPTIONS.iterations
    if victim is not dispatcher:  # a new one does not tell what the one before had planned
        assert [each["iterations_redone"] > 0 for each in result["recoveries"]] == [True]
    assert_same_run(result, tmp_path, undisturbed)
