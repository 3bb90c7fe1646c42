"""kill -9 in a run whose table is full: rows that were forgotten since the checkpoint are there again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from esd.services.domain.jobs import RowLimitPolicy
from tests.recovery.kills import OPTIONS, Killer, assert_same_run, interrupted_run, parameter_server, worker
from tests.support import training

FULL_TABLE = replace(OPTIONS, max_rows=1_500, at_max_rows=RowLimitPolicy.FORGET)


@pytest.fixture(scope="module")
def undisturbed_full_table(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    path = tmp_path_factory.mktemp("undisturbed-full-table")
    result = training.run(FULL_TABLE, store="memory", shards=2, out=path)
    assert result["forgotten_rows"] > FULL_TABLE.max_rows
    return path, result


@pytest.mark.parametrize(("store", "choose"), [("directory", parameter_server), ("redis", worker)])
def test_the_run_ends_with_the_undisturbed_model(undisturbed_full_table, tmp_path, redis_url, store, choose):
    keep = {"store": redis_url} if store == "redis" else {"store": "memory", "checkpoint_dir": tmp_path / "kept"}
    kill = Killer(choose)
    result = interrupted_run(FULL_TABLE, kill, shards=2, **keep, out=tmp_path)
    assert [each["iterations_redone"] >= 5 for each in result["recoveries"]] == [True]
    assert result["forgotten_rows"] == undisturbed_full_table[1]["forgotten_rows"]
    assert_same_run(result, tmp_path, undisturbed_full_table)
