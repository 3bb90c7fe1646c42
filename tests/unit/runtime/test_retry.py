"""Pauses that grow up to a bound, for as long as there is patience."""

import asyncio
from types import SimpleNamespace

import pytest

from services.domain.errors import DeadlineExceeded, NotFound, Unavailable
from services.runtime import retry
from services.runtime.retry import Backoff, repeated
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
    async with asyncio.timeout(5):
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


async def test_a_success_gives_patience_back(slept, monkeypatch):
    now = 0.0
    monkeypatch.setattr(retry, "time", SimpleNamespace(monotonic=lambda: now))
    backoff = Backoff(patience=10)
    now = 9.0
    backoff.reset()
    now = 18.9
    await backoff.pause(Unavailable("away"))
    assert len(slept) == 1
    with pytest.raises(Unavailable, match="still away"):
        await backoff.pause(Unavailable("still away"))
