"""kill -9 of a process of a job over several tables: all tables go back together, on all shards."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from esd.cli import checkpoint
from esd.services.domain.jobs import RowLimitPolicy
from tests.recovery.kills import Killer, assert_same_run, dispatcher, interrupted_run, parameter_server, worker
from tests.support import training
from tests.support.models import assert_same_model, model_arrays
from tests.support.several_tables import ADAGRAD, ADAM, TabledOptions

OPTIONS = TabledOptions(
    workers=2,
    links="20m,10m",  # slow enough that a kill between two checkpoints hits the time between them
    batch=30,
    dim=8,
    cache_rows=600,
    model="dcn",
    iterations=60,
    seed=3,
    checkpoint_every=25,
    specs=((8, ADAM), (24, ADAGRAD)),
)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    path = tmp_path_factory.mktemp("undisturbed")
    return path, training.run(OPTIONS, store="memory", shards=2, out=path)


@pytest.mark.parametrize("victim", [worker, dispatcher, parameter_server])
def test_a_killed_process_leaves_all_tables_at_one_checkpoint(undisturbed, tmp_path, victim):
    kill = Killer(victim)
    keep = {"store": "memory", "shards": 2, "checkpoint_dir": tmp_path / "kept"}
    result = interrupted_run(OPTIONS, kill, **keep, out=tmp_path)
    assert kill.killed
    assert_same_run(result, tmp_path, undisturbed)


def test_a_killed_parameter_server_goes_on_with_the_tables_that_redis_has(undisturbed, tmp_path, redis_url):
    kill = Killer(parameter_server)
    result = interrupted_run(OPTIONS, kill, store=redis_url, shards=2, out=tmp_path)
    assert kill.killed == "ps-1"
    assert_same_run(result, tmp_path, undisturbed)


def test_esd_checkpoint_goes_back_with_all_tables(undisturbed, tmp_path):
    keep = {"store": "memory", "checkpoint_dir": tmp_path / "kept"}
    training.run(OPTIONS, **keep, shards=2, out=tmp_path / "first")

    def esd(*arguments: str) -> dict:
        result = CliRunner().invoke(checkpoint.app, [*arguments, "--checkpoint-dir", str(tmp_path / "kept"), "--json"])
        assert result.exit_code == 0, result.exception
        return json.loads(result.stdout.splitlines()[-1])

    listed = esd("list")["checkpoints"]
    assert [(each["table"], each["iteration"]) for each in listed] == [("embeddings", 50), ("embeddings", 60)]
    model = model_arrays(tmp_path / "first" / "model")
    assert listed[-1]["rows"] == sum(len(model[name]) for name in model if name.endswith("/ids"))
    assert all(not each["damage"] for each in esd("verify")["checkpoints"])
    esd("restore", "50")
    assert [each["iteration"] for each in esd("list")["checkpoints"]] == [50]
    training.run(OPTIONS, **keep, shards=1, out=tmp_path / "again")
    assert_same_model(tmp_path / "again", undisturbed[0])


def test_rows_of_all_tables_leave_a_full_job_and_come_back_as_new(tmp_path):
    options = replace(OPTIONS, max_rows=1000, at_max_rows=RowLimitPolicy.FORGET, iterations=40)
    expected = training.run(options, store="memory", shards=2, out=tmp_path / "undisturbed")
    assert expected["forgotten_rows"] > 0
    keep = {"store": "memory", "shards": 2, "checkpoint_dir": tmp_path / "kept"}
    result = interrupted_run(options, Killer(worker, iteration=32), **keep, out=tmp_path)
    assert_same_run(result, tmp_path, (tmp_path / "undisturbed", expected))
