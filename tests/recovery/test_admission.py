"""kill -9 in a run that admits ids in their third iteration, and a run that goes on with the counts of another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from esd.run.stream import first_samples, global_batches
from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.tables import OptimizerKind
from tests.recovery.kills import OPTIONS, Killer, assert_same_run, dispatcher, interrupted_run, parameter_server, worker
from tests.support import training
from tests.support.models import distance
from tests.support.reference import train_reference

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
    """Two runs with 2 and 4 workers, another seed and evictions train the model of one process."""
    first = replace(
        OPTIONS,
        data="synthetic:zipf?samples=1800&fields=3&keys=4000",
        optimizer=OptimizerKind.SGD,
        learning_rate=0.05,
        links="1g",
        iterations=30,
        admit_after=3,
        cache_rows=120,
    )
    second = replace(first, workers=4, batch=15, iterations=20)
    store = {"store": "memory", "checkpoint_dir": tmp_path / "kept", "shards": 2}
    training.run(first, out=None, table="model", **store)
    for after, before in ((2, 3), (4, 3)):
        with pytest.raises(FailedPrecondition, match=rf"admits ids in iteration {before} \(--admit-after"):
            training.run(replace(second, admit_after=after), out=None, continue_from="model", **store)
    result = training.run(second, out=tmp_path, continue_from="model", **store)
    assert sum(result["operations"]["evict_push"]) > 0

    dataset = first.open(1024)
    job = first.job(features=dataset.features, dense_features=dataset.dense_features, parameter_servers=("none",))
    batches = [
        batch
        for options in (first, second)
        for batch in global_batches(first_samples(options.open(1024), options.iterations * 60), 60)
    ]
    expected = train_reference(job, batches)
    with np.load(tmp_path / "model.npz") as model:
        np.testing.assert_array_equal(model["ids"], expected.ids)
        np.testing.assert_array_equal(model["versions"], expected.versions)
        assert distance(model["rows"], expected.rows) < 1e-5
