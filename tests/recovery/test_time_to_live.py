"""kill -9 in a run whose rows have a time to live: rows that expired since the checkpoint live again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from esd.services.domain.errors import FailedPrecondition
from tests.recovery.continued import assert_trained_as_by_one_process, continued_runs
from tests.recovery.kills import OPTIONS, Killer, assert_same_run, dispatcher, interrupted_run, parameter_server, worker
from tests.support import training

LIVED = replace(OPTIONS, row_ttl=8)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    path = tmp_path_factory.mktemp("undisturbed-time-to-live")
    result = training.run(LIVED, store="memory", shards=2, out=path)
    assert result["expired_rows"] > 1000
    assert result["forgotten_rows"] == 0
    return path, result


@pytest.mark.parametrize(
    ("store", "choose"), [("directory", parameter_server), ("redis", worker), ("directory", dispatcher)]
)
def test_the_run_ends_with_the_undisturbed_model(undisturbed, tmp_path, redis_url, store, choose):
    keep = {"store": redis_url} if store == "redis" else {"store": "memory", "checkpoint_dir": tmp_path / "kept"}
    result = interrupted_run(LIVED, Killer(choose), shards=2, **keep, out=tmp_path)
    assert result["expired_rows"] == undisturbed[1]["expired_rows"]
    assert_same_run(result, tmp_path, undisturbed)


def test_a_run_that_goes_on_counts_the_iterations_before(tmp_path):
    """Two runs with 2 and 4 workers train the model of one process; a shorter time to live is refused."""
    first, second = continued_runs(row_ttl=6)
    store = {"store": "memory", "checkpoint_dir": tmp_path / "kept", "shards": 2}
    training.run(first, out=None, table="model", **store)
    with pytest.raises(FailedPrecondition, match=r"live 5 iterations .*\(--row-ttl\), and 6 in the run"):
        training.run(replace(second, row_ttl=5), out=None, continue_from="model", **store)
    training.run(second, out=tmp_path, continue_from="model", **store)
    assert_trained_as_by_one_process((first, second), tmp_path)
