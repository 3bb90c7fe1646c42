import asyncio

import pytest

from services.domain.errors import DeadlineExceeded, NotFound, Unavailable
from services.runtime.retry import repeated
from worker.service.tasks import all_of


class Flaky:
    """Fails with the given errors, then returns 7."""

    def __init__(self, *errors):
        self.errors = list(errors)

    async def call(self):
        if self.errors:
            raise self.errors.pop(0)
        return 7


async def test_a_call_is_repeated_while_its_peer_is_away():
    assert await repeated(Flaky(Unavailable("a"), Unavailable("b")).call, seconds=10) == 7


async def test_other_errors_are_not_repeated():
    flaky = Flaky(Unavailable("a"), DeadlineExceeded("b"))
    with pytest.raises(DeadlineExceeded):
        await repeated(flaky.call, seconds=10)
    assert await repeated(Flaky(NotFound("no job yet")).call, seconds=10, on=NotFound) == 7


async def test_the_last_error_is_raised_when_the_time_is_up():
    flaky = Flaky(*(Unavailable(str(i)) for i in range(1000)))
    async with asyncio.timeout(5):
        with pytest.raises(Unavailable):
            await repeated(flaky.call, seconds=0.3)


async def test_results_come_in_order():
    async def after(seconds, value):
        await asyncio.sleep(seconds)
        return value

    assert await all_of([after(0.02, 1), after(0, 2)]) == [1, 2]


async def test_the_first_failure_cancels_the_others_and_is_raised_bare():
    cancelled = asyncio.Event()

    async def wait():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with pytest.raises(Unavailable, match="gone"):
        await all_of([wait(), Flaky(Unavailable("gone")).call()])
    assert cancelled.is_set()
