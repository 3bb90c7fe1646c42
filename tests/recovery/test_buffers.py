"""kill -9 of a process of a job whose model has buffers that change: they go back to the checkpoint with all else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.recovery.kills import OPTIONS, Killer, assert_same_run, dispatcher, interrupted_run, worker
from tests.support import training
from tests.support.models import model_arrays

BUFFERED = replace(OPTIONS, model="tests.support.running_model:Net")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    path = tmp_path_factory.mktemp("undisturbed")
    return path, training.run(BUFFERED, store="memory", shards=1, out=path)


@pytest.mark.parametrize("victim", [worker, dispatcher])
def test_a_killed_process_leaves_the_buffers_of_an_undisturbed_run(undisturbed, tmp_path, victim):
    kill = Killer(victim)
    result = interrupted_run(BUFFERED, kill, store="memory", shards=1, out=tmp_path)
    assert kill.killed
    assert_same_run(result, tmp_path, undisturbed)
    model = model_arrays(tmp_path / "model")
    assert model["dense/steps"] == OPTIONS.iterations
    assert model["dense/norm.count"] == 100 + OPTIONS.iterations * OPTIONS.batch * OPTIONS.workers
