"""Held-out files that are replaced would judge one model by two data sets: they are refused by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from esd.run.options import RunOptions
from esd.run.results import Result
from esd.services.domain.errors import InvalidArgument
from tests.support import training

SCHEMA = 'label = "label"\nids = ["user", "item"]\n'
EVERY = 8


def write(file: Path, seed: int, count: int) -> None:
    """Puts new samples in the place of a file, as a daily job does."""
    rng = np.random.default_rng(seed)
    rows = np.column_stack([rng.integers(0, 50, (count, 2)), rng.integers(0, 2, count)])
    new = file.with_suffix(".new")
    new.write_text("user,item,label\n" + "".join(f"{user},{item},{label}\n" for user, item, label in rows))
    new.replace(file)


@pytest.fixture
def options(tmp_path: Path) -> RunOptions:
    (tmp_path / "schema.toml").write_text(SCHEMA)
    write(tmp_path / "trained.csv", 0, 600)
    write(tmp_path / "judges.csv", 1, 100)
    return RunOptions(
        data=str(tmp_path / "trained.csv"), evaluate=str(tmp_path / "judges.csv"), schema=tmp_path / "schema.toml",
        evaluate_every=EVERY, workers=1, links="10g", batch=12, dim=4, hidden="8", cache_rows=100,
    )  # fmt: skip


def test_a_held_out_file_that_is_replaced_during_a_run_is_refused(options: RunOptions, tmp_path: Path) -> None:
    def replace_later(_cluster: object, state: training.JobState) -> None:
        if state.evaluations and state.evaluations[-1].iteration == EVERY:
            write(tmp_path / "judges.csv", 2, 100)

    with pytest.raises(InvalidArgument, match=rf"data file {tmp_path}/judges\.csv has changed since this run began"):
        training.run(options, watch=replace_later, store="memory", out=None)


def losses(result: Result) -> dict[int, float]:
    """Returns the losses of the evaluations of a run by iteration."""
    return {each["iteration"]: each["loss"] for each in result["evaluations"]}


class Stopped(Exception):
    """Ends a run."""


def test_a_held_out_file_that_is_replaced_between_two_starts_of_a_run_is_refused(
    options: RunOptions, tmp_path: Path
) -> None:
    kept = {"store": "memory", "checkpoint_dir": tmp_path / "kept", "out": None}
    undisturbed = losses(training.run(options, store="memory", out=None))

    def stop(_cluster: object, state: training.JobState) -> None:
        if state.checkpoint >= 3 * EVERY:  # which holds the first evaluation
            raise Stopped

    with pytest.raises(Stopped):
        training.run(options, watch=stop, **kept)
    write(tmp_path / "judges.csv", 2, 100)
    with pytest.raises(
        InvalidArgument, match=rf"evaluated at iteration {EVERY} with other held-out samples: they were"
    ):
        training.run(options, **kept)
    write(tmp_path / "judges.csv", 1, 100)
    again = losses(training.run(options, **kept))
    assert set(again) >= {EVERY, max(undisturbed)}
    assert again == {iteration: undisturbed[iteration] for iteration in again}
