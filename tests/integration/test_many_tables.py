"""A job over 26 tables of 26 dimensions trains the model of one process."""

from __future__ import annotations

from pathlib import Path

from esd.run.simulation import simulate_run
from esd.run.stream import first_samples, global_batches
from tests.support import training
from tests.support.many_tables import BATCH, ITERATIONS, TABLES, write_events
from tests.support.models import assert_trained
from tests.support.reference import train_reference


def test_a_cluster_trains_26_tables_as_one_process_does(tmp_path: Path) -> None:
    options = write_events(tmp_path)
    keep = {"store": "memory", "checkpoint_dir": tmp_path / "kept"}
    result = training.run(options, shards=2, out=tmp_path, **keep)
    data = options.open(1024)
    job = options.job(features=data.features, dense_features=data.dense_features, parameter_servers=("none",))
    assert [table.dimension for table in job.tables] == list(range(3, 3 + TABLES))
    expected = train_reference(job, global_batches(first_samples(data, None), BATCH))
    assert result["iterations"] == ITERATIONS
    assert_trained(tmp_path / "model", expected)
    assert result["operations"] == simulate_run(options)["operations"]
