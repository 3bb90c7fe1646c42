"""kill -9 in a run with more rows than its dispatcher knows: rows released since the checkpoint are known again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.recovery.kills import OPTIONS, Killer, assert_same_run, dispatcher, interrupted_run, parameter_server, worker
from tests.support import training
from tests.support.models import model_arrays

MANY_ROWS = replace(
    OPTIONS,
    data="synthetic:zipf?keys=250000&fields=26&skew=1.05",
    links="400m,200m",
    batch=256,
    dim=4,
    cache_rows=8_000,
    mechanism="laia",
    iterations=30,
    checkpoint_every=12,
)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    path = tmp_path_factory.mktemp("undisturbed-many-rows")
    return path, training.run(MANY_ROWS, store="memory", shards=2, out=path)


@pytest.mark.parametrize("choose", [parameter_server, worker, dispatcher])
def test_the_run_ends_with_the_undisturbed_model(undisturbed, tmp_path, choose):
    kill = Killer(choose, iteration=18)
    result = interrupted_run(MANY_ROWS, kill, shards=2, store="memory", checkpoint_dir=tmp_path / "kept", out=tmp_path)
    assert kill.over.is_set()
    model = model_arrays(tmp_path / "model")
    assert len(model["ids"]) > 2 * 65_536
    assert_same_run(result, tmp_path, undisturbed)
