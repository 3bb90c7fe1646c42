"""kill -9 of a process of a job whose samples have lists: pooled, and one by one, in tables that they share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from esd.run.options import RunOptions
from tests.recovery.kills import OPTIONS, Killer, assert_same_run, dispatcher, interrupted_run, parameter_server, worker
from tests.support import training
from tests.support.lists import MODEL, SHARED, write_events


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> RunOptions:
    """A run over as many events as it has iterations."""
    folder, schema = tmp_path_factory.mktemp("events"), tmp_path_factory.mktemp("schema") / "schema.toml"
    write_events(folder, OPTIONS.iterations * OPTIONS.batch * OPTIONS.workers, times=10)
    schema.write_text(SHARED)
    return replace(OPTIONS, data=str(folder), schema=schema, model=MODEL, iterations=None)


@pytest.fixture(scope="module")
def undisturbed(options: RunOptions, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    path = tmp_path_factory.mktemp("undisturbed")
    return path, training.run(options, store="memory", shards=2, out=path)


@pytest.mark.parametrize("victim", [worker, dispatcher, parameter_server])
def test_a_killed_process_leaves_the_model_of_an_undisturbed_run(options, undisturbed, tmp_path, victim):
    kill = Killer(victim)
    keep = {"store": "memory", "shards": 2, "checkpoint_dir": tmp_path / "kept"}
    result = interrupted_run(options, kill, **keep, out=tmp_path)
    assert kill.killed
    assert result["iterations"] == OPTIONS.iterations
    if victim is not dispatcher:  # a new one does not tell what the one before had planned
        assert [each["iterations_redone"] > 0 for each in result["recoveries"]] == [True]
    assert_same_run(result, tmp_path, undisturbed)
