"""A data file that is replaced during a run: a dispatcher that starts again gets no samples of two data sets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from esd.run.cluster import LocalServices
from esd.run.options import RunOptions
from esd.services.domain.errors import InvalidArgument
from tests.recovery.kills import Interruption, dispatcher, interrupted_run, worker
from tests.support.models import model_arrays

SAMPLES = 4000


def write(file: Path, first: int) -> None:
    """Puts samples of users from a first one on in the place of a file, by a rename."""
    rng = np.random.default_rng(first)
    rows = np.column_stack([first + rng.integers(0, 300, SAMPLES), rng.integers(0, 2, SAMPLES)])
    new = file.with_suffix(".new")
    new.write_text("user,label\n" + "".join(f"{user},{label}\n" for user, label in rows))
    new.replace(file)


@pytest.fixture
def options(tmp_path: Path) -> RunOptions:
    (tmp_path / "schema.toml").write_text('label = "label"\nids = ["user"]\n')
    write(tmp_path / "day.csv", 0)
    return RunOptions(
        data=str(tmp_path / "day.csv"), schema=tmp_path / "schema.toml", workers=2, links="20m,10m", batch=20, dim=4,
        hidden="8", cache_rows=200, checkpoint_every=25,
    )  # fmt: skip


def test_a_dispatcher_that_dies_after_the_file_was_replaced_ends_the_run_with_the_file_s_name(options, tmp_path):
    def replace_and_kill(cluster: LocalServices) -> None:
        write(tmp_path / "day.csv", 10_000)
        dispatcher(cluster).process.kill()

    with pytest.raises(InvalidArgument, match=rf"data file {tmp_path}/day\.csv has changed since this run began"):
        interrupted_run(options, Interruption(replace_and_kill), store="memory", out=tmp_path)
    assert not (tmp_path / "model").exists()


def test_a_worker_that_dies_after_the_file_was_replaced_trains_the_file_that_is_open(options, tmp_path):
    def replace_and_kill(cluster: LocalServices) -> None:
        write(tmp_path / "day.csv", 10_000)
        worker(cluster).process.kill()

    result = interrupted_run(options, Interruption(replace_and_kill), store="memory", out=tmp_path)
    assert result["samples"] == SAMPLES
    model = model_arrays(tmp_path / "model")
    assert len(model["ids"]) == 300
