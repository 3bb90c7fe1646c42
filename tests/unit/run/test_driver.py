"""The messages of a driver about a job that the dispatcher calls finished."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from esd.run import driver
from esd.run.events import AlreadyTrained, Checkpointed, Event, NotCancelled, Progressed, Resumed, Retrying
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

    async def feed(self, _job: str, _batches: Any, *, part: int) -> None:
        assert part == 0

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
async def test_nothing_was_trained_now_is_said_only_if_it_is_so(says, trained, monkeypatch):
    monkeypatch.setattr(driver, "POLL_SECONDS", 0.0)
    events: list[Event] = []
    final = await driver.drive(Dispatcher(*says), JOB, [], events.append)
    assert final.iterations_confirmed == 20
    said = [str(event) for event in events if event == AlreadyTrained(JOB.table.name, 20)]
    assert [("nothing was trained now" in each) for each in said] == [True] * (not trained)


async def test_what_is_away_is_told_once_until_it_is_back(monkeypatch):
    monkeypatch.setattr(driver, "POLL_SECONDS", 0.0)
    away = [Unavailable("nobody at 127.0.0.1:1")] * 2
    events: list[Event] = []
    await driver.drive(Dispatcher(*away, RUNNING, *away, FINISHED), JOB, [], events.append)
    assert [str(event) for event in events].count("nobody at 127.0.0.1:1; tried again for 60 s") == 2


async def test_a_dispatcher_that_gets_the_job_again_is_not_called_away(monkeypatch):
    monkeypatch.setattr(driver, "POLL_SECONDS", 0.0)
    events: list[Event] = []
    await driver.drive(Dispatcher(RUNNING, NotFound("no job yet"), FINISHED), JOB, [], events.append)
    assert not any(isinstance(event, Retrying) for event in events)


async def test_a_dispatcher_that_does_not_answer_whoever_stops_is_said_to(monkeypatch):
    class Hanging(Dispatcher):
        async def cancel_job(self, _job: str, _reason: str) -> None:
            await asyncio.Event().wait()

    monkeypatch.setattr(driver, "_CANCEL_SECONDS", 0.01)
    events: list[Event] = []

    def cancel(event: Event) -> None:
        events.append(event)
        driving.cancel()

    driving = asyncio.create_task(driver.drive(Hanging(RUNNING), JOB, [], cancel))
    with pytest.raises(asyncio.CancelledError):
        await driving
    assert events[-1] == NotCancelled(JOB.name, "no answer within 0.01 s")
    assert str(events[-1]) == f"job {JOB.name} could not be cancelled: no answer within 0.01 s"


async def test_a_checkpoint_and_a_way_back_are_reported_once(monkeypatch):
    monkeypatch.setattr(driver, "POLL_SECONDS", 0.0)
    events: list[Event] = []
    back = replace(RUNNING, resumed_from=10, checkpoint=10)
    await driver.drive(Dispatcher(RUNNING, back, back, replace(back, checkpoint=15), FINISHED), JOB, [], events.append)
    noted = [event for event in events if not isinstance(event, Progressed)]
    assert noted == [Resumed(JOB.table.name, 10), Checkpointed(10), Checkpointed(15)]
