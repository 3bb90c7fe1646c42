"""`esd train` that is stopped says how the run goes on, and the same command goes on with it."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from esd.cli.shown_run import ShownRun
from esd.cli.stopping import run_until_stopped
from esd.run.cluster import LocalServices
from esd.run.options import RunOptions
from esd.run.results import Result
from esd.run.train import train
from esd.services.domain.state import JobState
from tests.support.training import Watch, watching

OPTIONS = RunOptions(
    workers=1,
    links="1m",  # slow, so that it stops long before its end, however late it is looked at
    data="synthetic:zipf?samples=2000&fields=4&keys=500",
    batch=10,
    dim=4,
    cache_ratio=0.2,
    checkpoint_every=5,
    iterations=200,
)


def shown_run(
    options: RunOptions, out: Path, kept: Path | None, watch: Watch = lambda _cluster, _state: None
) -> Result:
    """Trains as the command does; `watch` sees the cluster and each state of the job."""
    with ShownRun(options.mechanism, None if kept is None else lambda _: "the same command") as shown:
        work = train(options, watching(watch, shown), out=out, checkpoint_dir=kept)
        return run_until_stopped(work).result()


def stop_late(number: int = signal.SIGINT) -> Callable[[LocalServices, JobState], None]:
    """Sends Ctrl-C's signal, or another one, once there is a checkpoint."""

    def watch(_: LocalServices, state: JobState) -> None:
        if state.checkpoint >= 10:
            signal.raise_signal(number)

    return watch


@pytest.mark.parametrize(("number", "end"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_a_run_that_is_stopped_goes_on_at_the_checkpoint_that_it_names(
    number: int, end: type[BaseException], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "kept"
    with pytest.raises(end):
        shown_run(OPTIONS, tmp_path, kept, stop_late(number))
    told = " ".join(capsys.readouterr().err.split())
    stopped = re.search(r"stopped; the same command goes on at iteration (\d+), the last checkpoint", told)
    assert stopped is not None, told

    faster = replace(OPTIONS, links="1g")  # which changes no job
    result = shown_run(faster, tmp_path, kept)
    told = " ".join(capsys.readouterr().err.split())
    goes_on = re.search(r"goes on at iteration (\d+), the last checkpoint of table embeddings", told)
    assert goes_on is not None, told
    assert 10 <= int(stopped[1]) <= int(goes_on[1]) < 200  # one may have become complete after the last look at the job
    assert result["iterations"] == 200


def test_a_run_that_keeps_nothing_promises_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        shown_run(OPTIONS, tmp_path, None, stop_late())
    assert "stopped" not in capsys.readouterr().err
