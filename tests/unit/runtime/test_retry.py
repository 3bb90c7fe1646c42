"""Pauses that grow up to a bound, for as long as there is patience."""

import asyncio
from types import SimpleNamespace

import pytest

from esd.services.domain.errors import DeadlineExceeded, NotFound, Unavailable
from esd.services.runtime import retry
from esd.services.runtime.retry import Backoff, repeated
from tests.support.flaky import Flaky


async def test_a_call_is_repeated_while_its_peer_is_away():
    assert await repeated(Flaky(Unavailable("a"), Unavailable("b")).call, patience=10) == 7


async def test_other_errors_are_not_repeated():
    flaky = Flaky(Unavailable("a"), DeadlineExceeded("b"))
    with pytest.raises(DeadlineExceeded):
        await repeated(flaky.call, patience=10)
    assert await repeated(Flaky(NotFound("no job yet")).call, patience=10, on=NotFound) == 7


async def test_the_last_error_is_raised_when_the_time_is_up():
    flaky = Flaky(*(Unavailable(str(i)) for i in range(1000)))
    async with asyncio.timeout(60):
        with pytest.raises(Unavailable):
            await repeated(flaky.call, patience=0.3)


@pytest.fixture
def slept(monkeypatch):
    """The pauses made, which take no time."""
    pauses = []

    async def sleep(seconds):
        pauses.append(seconds)

    monkeypatch.setattr(retry, "asyncio", SimpleNamespace(sleep=sleep))
    return pauses


async def test_pauses_double_up_to_a_bound_and_begin_anew_after_a_success(slept):
    backoff = Backoff(patience=1000)
    for _ in range(8):
        await backoff.pause(Unavailable("away"))
    backoff.reset()
    await backoff.pause(Unavailable("away"))
    longest = [0.05, 0.1, 0.2, 0.4, 0.8, 1, 1, 1, 0.05]
    assert all(bound / 2 <= pause <= bound for pause, bound in zip(slept, longest, strict=True))


@pytest.fixture
def clock(monkeypatch):
    """The time, which passes as the test says."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(retry, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


async def test_a_success_gives_patience_back(slept, clock):
    backoff = Backoff(patience=10)
    await backoff.pause(Unavailable("away"))
    clock.now = 9.0
    backoff.reset()
    for clock.now in (12.0, 21.8):
        await backoff.pause(Unavailable("away"))
    clock.now = 22.0
    with pytest.raises(Unavailable, match="still away"):
        await backoff.pause(Unavailable("still away"))
    assert len(slept) == 3


async def test_what_was_before_the_first_failure_does_not_count(slept, clock):
    """As of a stream that has lasted for long, or of a process that was suspended."""
    backoff = Backoff(patience=10)
    for clock.now in (1000.0, 1009.0):
        await backoff.pause(Unavailable("away"))
    clock.now = 1010.0
    with pytest.raises(Unavailable, match="still away"):
        await backoff.pause(Unavailable("still away"))
    assert len(slept) == 2
