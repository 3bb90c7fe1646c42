"""The messages of a driver about a job that the dispatcher calls finished."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace
from typing import Any

import pytest

from esd.cli import driver
from esd.services.domain.errors import EsdError, NotFound, Unavailable
from esd.services.domain.state import JobPhase, JobState, Quality
from tests.support.simple_clients import job_with

JOB = job_with(checkpoint_every=5)
QUALITY = Quality(0.5, 0.5, 1.0, 1.0)
NOTHING = JobState(
    JOB, JobPhase.WAITING_FOR_WORKERS, "", samples_submitted=0, iterations_planned=0, iterations_confirmed=0,
    quality=QUALITY, recent=QUALITY, workers=(), cost_seconds=0.0, makespan_seconds=0.0, expected_cost_seconds=0.0,
    lookups=0, hits=0, decision_median_seconds=0.0, decision_p99_seconds=0.0, training_seconds=0.0,
)  # fmt: skip
RUNNING = replace(NOTHING, phase=JobPhase.RUNNING)
FINISHED = replace(NOTHING, phase=JobPhase.FINISHED, iterations_planned=20, iterations_confirmed=20, resumed_from=20)


class Dispatcher:
    """Says one thing after the other of its job, and takes all samples."""

    def __init__(self, *says: JobState | EsdError) -> None:
        self._says = list(says)

    async def create_job(self, _job: Any) -> None:
        pass

    async def feed(self, _job: str, _batches: Any) -> None:
        pass

    async def describe(self) -> JobState:
        said = self._says.pop(0)
        if isinstance(said, EsdError):
            raise said
        return said


@pytest.mark.parametrize(
    ("says", "trained"),
    [
        ([NOTHING, FINISHED], False),
        ([NOTHING, RUNNING, replace(FINISHED, resumed_from=0)], True),
        ([RUNNING, Unavailable("started again"), FINISHED], True),
    ],
    ids=["finished before", "trained", "trained, and the dispatcher was started again at the end"],
)
async def test_nothing_was_trained_now_is_said_only_if_it_is_so(says, trained, capsys, monkeypatch):
    monkeypatch.setattr(driver, "POLL_SECONDS", 0.0)
    final = await driver.drive(Dispatcher(*says), JOB, [], lambda _: None)
    assert final.iterations_confirmed == 20
    assert ("nothing was trained now" not in " ".join(capsys.readouterr().err.split())) == trained


async def test_what_is_away_is_told_once_until_it_is_back(capsys, monkeypatch):
    monkeypatch.setattr(driver, "POLL_SECONDS", 0.0)
    away = [Unavailable("nobody at 127.0.0.1:1")] * 2
    await driver.drive(Dispatcher(*away, RUNNING, *away, FINISHED), JOB, [], lambda _: None)
    assert capsys.readouterr().err.count("nobody at 127.0.0.1:1; tried again for 60 s") == 2


async def test_a_dispatcher_that_gets_the_job_again_is_not_called_away(capsys, monkeypatch):
    monkeypatch.setattr(driver, "POLL_SECONDS", 0.0)
    await driver.drive(Dispatcher(RUNNING, NotFound("no job yet"), FINISHED), JOB, [], lambda _: None)
    assert "tried again" not in capsys.readouterr().err


async def test_a_dispatcher_that_does_not_answer_whoever_stops_is_said_to(capsys, monkeypatch):
    class Hanging(Dispatcher):
        async def cancel_job(self, _job: str, _reason: str) -> None:
            await asyncio.Event().wait()

    monkeypatch.setattr(driver, "_CANCEL_SECONDS", 0.01)
    driving = asyncio.create_task(driver.drive(Hanging(RUNNING), JOB, [], lambda _: driving.cancel()))
    with pytest.raises(asyncio.CancelledError):
        await driving
    assert f"job {JOB.name} could not be cancelled: no answer within 0.01 s" in capsys.readouterr().err


@pytest.mark.parametrize("tasks", [0, 1, 2], ids="the signal comes while a task {} deep has the processor".format)
@pytest.mark.parametrize("signals", [1, 2])
def test_sigterm_lets_a_run_clear_up(tasks: int, signals: int) -> None:
    cleared = []

    async def step(deeper: int) -> None:
        if deeper:
            await asyncio.create_task(step(deeper - 1))
        signal.raise_signal(signal.SIGTERM)
        await asyncio.Event().wait()

    async def work() -> None:
        try:
            await step(tasks)
        except asyncio.CancelledError:
            for _ in range(1, signals):
                signal.raise_signal(signal.SIGTERM)
            await asyncio.sleep(0.01)  # as what asks the dispatcher to end the job
            cleared.append(True)
            raise

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended:
        driver.run_until_stopped(work())
    assert (ended.value.code, cleared) == (143, [True])
    assert signal.getsignal(signal.SIGTERM) is before
