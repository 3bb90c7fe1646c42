"""`esd checkpoint` on the stores of real runs, and runs that go on from where it put them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from esd.cli import checkpoint
from esd.run.cluster import LocalServices
from esd.run.options import RunOptions
from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.state import JobState
from esd.services.domain.tables import OptimizerKind
from tests.support import training
from tests.support.models import model_arrays

OPTIONS = RunOptions(
    workers=1,
    links="10g",
    batch=32,
    dim=8,
    cache_rows=700,
    optimizer=OptimizerKind.SGD,
    learning_rate=0.1,
    iterations=72,
    checkpoint_every=16,
    checkpoints_kept=3,
)


class Place:
    """A store, as `esd train` and `esd checkpoint` are told of it; and how many workers a run goes on with there."""

    def __init__(self, redis_url: str, directory: Path | str | None, workers: int) -> None:
        self.workers = workers
        self.run_options: dict[str, Any] = {"store": redis_url, "checkpoint_dir": directory}
        self.options = ["--store", redis_url] if directory is None else ["--checkpoint-dir", str(directory)]

    def esd(self, *arguments: str) -> Result:
        return CliRunner().invoke(checkpoint.app, [*arguments, *self.options])

    def json(self, *arguments: str) -> Any:
        return json.loads(self.esd(*arguments, "--json").stdout.splitlines()[-1])

    def checkpoints(self) -> list[int]:
        return [each["iteration"] for each in self.json("list")["checkpoints"]]

    def train(self, options: RunOptions, out: Path, **more: Any) -> dict[str, np.ndarray]:
        training.run(options, out=out, **self.run_options, **more)
        return model_arrays(out / "model")


@pytest.fixture(params=["directory", "redis"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "redis":
        return Place(request.getfixturevalue("redis_url"), None, workers=4)
    return Place("memory", tmp_path / "kept", workers=2)


def test_a_directory_that_is_not_there_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    for path in (tmp_path / "absent", Path(__file__)):
        result = CliRunner().invoke(checkpoint.app, ["list", "--checkpoint-dir", str(path)])
        assert str(result.exception) == f"there is no checkpoint directory {path}"
    assert not list(tmp_path.iterdir())


def refused_while_live(place: Place) -> Callable[[LocalServices, JobState], None]:
    """Once, within the run: its checkpoints can be listed, but not gone back to."""
    seen = []

    def watch(_: LocalServices, state: JobState) -> None:
        if state.checkpoint >= 32 and not seen:
            seen.append(place.checkpoints())
            assert state.checkpoint <= seen[0][-1]  # others may have come since the state was described
            assert isinstance(place.esd("restore", str(seen[0][-1])).exception, FailedPrecondition)

    return watch


def test_a_run_goes_back_and_on_with_other_shards_and_workers(place, tmp_path):
    whole = place.train(OPTIONS, tmp_path / "whole", shards=1, watch=refused_while_live(place))
    listed = place.json("list")["checkpoints"]
    assert [each["iteration"] for each in listed] == [48, 64, 72]  # the last at the end
    assert [each["samples"] for each in listed] == [32 * 48, 32 * 64, 32 * 72]
    assert listed[-1]["cuts"] == [16, 32, 48, 64, 72]
    # The directory writes all rows again when its files would hold more than 1.5 of each.
    assert all(0 < each["rows_changed"] <= each["rows"] and each["bytes"] > 0 for each in listed)
    assert "64" in place.esd("list").stdout
    assert all(not each["damage"] for each in place.json("verify")["checkpoints"])

    restore(place, 48)
    assert place.checkpoints() == [48]
    same = place.train(OPTIONS, tmp_path / "same", shards=3)
    for name, values in whole.items():
        np.testing.assert_array_equal(same[name], values, err_msg=name)

    restore(place, 48)
    others = replace(OPTIONS, workers=place.workers, batch=32 // place.workers)
    other = place.train(others, tmp_path / "other", shards=2)
    for name, values in whole.items():
        if values.dtype == np.float32:
            np.testing.assert_allclose(other[name], values, rtol=1e-4, atol=1e-6, err_msg=name)
        else:
            np.testing.assert_array_equal(other[name], values, err_msg=name)


def restore(place: Place, iteration: int) -> None:
    """At once: the servers said that they leave."""
    result = place.esd("restore", str(iteration))
    assert result.exit_code == 0, result.exception
