"""kill -9 in a run that admits ids in their third iteration, and a run that goes on with the counts of another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from esd.services.domain.errors import FailedPrecondition
from tests.recovery.continued import assert_trained_as_by_one_process, continued_runs
from tests.recovery.kills import OPTIONS, Killer, assert_same_run, dispatcher, interrupted_run, parameter_server, worker
from tests.support import training

ADMITTED = replace(OPTIONS, admit_after=3)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    path = tmp_path_factory.mktemp("undisturbed-admission")
    result = training.run(ADMITTED, store="memory", shards=2, out=path)
    assert min(result["admitted_rows"], result["initial_reads"]) > 1000
    return path, result


@pytest.mark.parametrize(
    ("store", "choose"), [("directory", parameter_server), ("redis", worker), ("directory", dispatcher)]
)
def test_the_run_ends_with_the_undisturbed_model(undisturbed, tmp_path, redis_url, store, choose):
    keep = {"store": redis_url} if store == "redis" else {"store": "memory", "checkpoint_dir": tmp_path / "kept"}
    result = interrupted_run(ADMITTED, Killer(choose), shards=2, **keep, out=tmp_path)
    for figure in ("admitted_rows", "initial_reads"):
        assert result[figure] == undisturbed[1][figure]
    assert_same_run(result, tmp_path, undisturbed)


def test_a_run_that_goes_on_counts_the_iterations_before(tmp_path):
    """Two runs with 2 and 4 workers and evictions train the model of one process."""
    first, second = continued_runs(admit_after=3, cache_rows=120)
    store = {"store": "memory", "checkpoint_dir": tmp_path / "kept", "shards": 2}
    training.run(first, out=None, table="model", **store)
    for after, before in ((2, 3), (4, 3)):
        with pytest.raises(FailedPrecondition, match=rf"admits ids in iteration {before} \(--admit-after"):
            training.run(replace(second, admit_after=after), out=None, continue_from="model", **store)
    result = training.run(second, out=tmp_path, continue_from="model", **store)
    assert sum(result["operations"]["evict_push"]) > 0
    assert_trained_as_by_one_process((first, second), tmp_path)
