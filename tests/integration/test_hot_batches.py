"""A run in hot and normal mini-batches: replayed, repeated, and gone on from, as any other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from esd.run.options import RunOptions
from esd.run.simulation import replay_run, simulate_run
from esd.services.domain.errors import FailedPrecondition
from tests.support import training

OPTIONS = RunOptions(
    data="synthetic:zipf?samples=3000&fields=3&keys=300&skew=1.6",
    workers=2,
    links="1g",
    batch=32,
    dim=8,
    cache_rows=700,
    sync="replicated:150",
    shuffle=300,
    hot_batches=20,
    seed=3,
)


def test_a_run_is_simulated_replayed_repeated_and_gone_on_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = {"store": "memory", "shards": 1, "out": None, "checkpoint_dir": tmp_path}
    log = tmp_path / "decisions.jsonl"
    result = training.run(OPTIONS, **kept, table="model", decision_log=log)
    assert result["samples"] == 3000
    assert "mini-batches were hot" in capsys.readouterr().err
    assert result["operations"] == simulate_run(OPTIONS)["operations"]
    samples = RunOptions(data=OPTIONS.data, shuffle=300, hot_batches=20, seed=3)
    assert replay_run(samples, log)["operations"] == result["operations"]
    with pytest.raises(FailedPrecondition, match=r"wait for 20.* now they .*wait for 10"):
        training.run(replace(OPTIONS, hot_batches=10), **kept, table="model")
    further = replace(OPTIONS, data="synthetic:zipf?samples=2000&fields=3&keys=300&skew=1.6")
    assert training.run(further, **kept, continue_from="model")["samples"] == 2000
