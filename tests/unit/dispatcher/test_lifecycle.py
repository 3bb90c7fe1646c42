"""All that wait on a job are woken by a change, and released with the cause when there is nothing to wait for."""

import asyncio
from collections.abc import Callable

import pytest

from esd.dispatcher.service.state.epoch import Epoch, PlanLog
from esd.dispatcher.service.state.lifecycle import Lifecycle
from esd.services.domain.errors import FailedPrecondition, StaleEpoch, Unavailable
from esd.services.domain.state import JobPhase
from esd.services.domain.worker_set import WorkerSet


def epoch_of_two() -> Epoch:
    members = WorkerSet.all_of(2)
    return Epoch(3, 10, members, PlanLog(members, 10))


async def test_a_wait_ends_when_its_condition_holds_and_is_looked_at_after_changes_only() -> None:
    lifecycle = Lifecycle("job")
    looks: list[JobPhase] = []

    def running() -> bool:
        looks.append(lifecycle.phase)
        return lifecycle.phase is JobPhase.RUNNING

    waiting = asyncio.create_task(lifecycle.wait_until(running))
    await asyncio.sleep(0)
    lifecycle.notify()
    await asyncio.sleep(0.01)
    assert looks == [JobPhase.WAITING_FOR_WORKERS] * 2
    lifecycle.advance(JobPhase.RUNNING)
    assert await waiting
    assert await lifecycle.wait_until(running, seconds=0), "a condition that holds needs no time"


async def test_a_wait_with_a_limit_says_that_the_condition_does_not_hold() -> None:
    assert not await Lifecycle("job").wait_until(lambda: False, seconds=0.01)


@pytest.mark.parametrize(
    ("end", "error", "text"),
    [
        (lambda lifecycle, _: lifecycle.fail("a link broke"), FailedPrecondition, "^job job failed: a link broke$"),
        (lambda lifecycle, _: lifecycle.stop(), Unavailable, "the dispatcher stops, and job job is waiting"),
        (lambda _, epoch: epoch.end("a worker was lost"), StaleEpoch, "^epoch 3 is over: a worker was lost$"),
    ],
)
async def test_a_wait_ends_with_what_it_waits_in(
    end: Callable[[Lifecycle, Epoch], None], error: type[Exception], text: str
) -> None:
    lifecycle, epoch = Lifecycle("job"), epoch_of_two()
    waiting = asyncio.create_task(lifecycle.wait_until(lambda: False, during=epoch))
    await asyncio.sleep(0)
    end(lifecycle, epoch)
    lifecycle.notify()
    with pytest.raises(error, match=text):
        await waiting
    with pytest.raises(error, match=text):
        await lifecycle.wait_until(lambda: True, during=epoch)


def test_a_call_of_another_epoch_is_refused() -> None:
    epoch = epoch_of_two()
    epoch.raise_unless_current(3)
    for other in (2, 4):
        with pytest.raises(StaleEpoch, match=f"epoch {other} is not the present one: the job is in epoch 3"):
            epoch.raise_unless_current(other)


def test_the_first_cause_of_a_failure_counts() -> None:
    lifecycle = Lifecycle("job")
    lifecycle.fail("the first")
    lifecycle.fail("the second")
    assert lifecycle.failure == "the first"


def test_a_job_that_has_finished_does_not_fail() -> None:
    lifecycle = Lifecycle("job")
    lifecycle.advance(JobPhase.FINISHED)
    lifecycle.fail("too late")
    assert (lifecycle.phase, lifecycle.failure) == (JobPhase.FINISHED, "")
