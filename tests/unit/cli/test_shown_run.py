"""Where no terminal watches, a run reports every ten seconds that it lives, how fast it is and how long it takes."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from esd.cli.shown_run import ShownRun
from esd.run.events import Progressed, Started
from esd.run.options import RunOptions
from esd.services.domain.state import JobPhase, JobState, Quality
from tests.support.simple_clients import JOB

QUALITY = Quality(0.5, 0.75, 1.0, 1.0)
STATE = JobState(
    JOB, JobPhase.RUNNING, "", samples_submitted=0, iterations_planned=0, iterations_confirmed=0, quality=QUALITY,
    recent=QUALITY, workers=(), cost_seconds=0.0, makespan_seconds=0.0, expected_cost_seconds=0.0, lookups=0, hits=0,
    decision_median_seconds=0.0, decision_p99_seconds=0.0, training_seconds=0.0,
)  # fmt: skip


def test_a_line_every_ten_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    seconds = 0.0
    with ShownRun("joint", None, clock=lambda: seconds) as shown:
        shown(Started(RunOptions("flights"), "embeddings", 704, 94))
        for _ in range(100):  # four states a second, of two iterations each
            seconds += 0.25
            shown(Progressed(replace(STATE, iterations_confirmed=704 + int(2 * seconds))))
    started, *lines = capsys.readouterr().err.splitlines()
    assert started == "table embeddings"
    assert lines == [
        "joint: running, 20 of 94 iterations, 2.05 per second, 0:00:37 left, loss 0.5000, AUC 0.7500",
        "joint: running, 40 of 94 iterations, 2 per second, 0:00:27 left, loss 0.5000, AUC 0.7500",
    ]


def test_a_run_that_waits_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    seconds = 0.0
    with ShownRun("joint", None, clock=lambda: seconds) as shown:
        shown(Started(RunOptions("flights"), "embeddings", 0, None))
        seconds = 11.0
        shown(Progressed(replace(STATE, phase=JobPhase.WAITING_FOR_WORKERS)))
    assert capsys.readouterr().err.splitlines()[1] == "joint: waiting for workers, 0 iterations"


def test_a_run_with_several_submitters_says_how_the_others_are_started(capsys: pytest.CaptureFixture[str]) -> None:
    cluster: Any = SimpleNamespace(dispatcher=SimpleNamespace(address="127.0.0.1:7"))
    for submitters, parts in ((2, "part 1"), (3, "parts 1 to 2")):
        with ShownRun("joint", None) as shown:
            shown(Started(RunOptions("flights", submitters=submitters), "embeddings", 0, None, "http://page/", cluster))
        assert capsys.readouterr().err.splitlines() == [
            "live: http://page/",
            f"the stream waits for {parts}: esd submit --dispatcher 127.0.0.1:7 --part N --data ...",
        ]
