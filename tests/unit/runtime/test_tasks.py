"""Things that run side by side."""

import asyncio

import pytest

from esd.services.domain.errors import Unavailable
from esd.services.runtime.tasks import all_of
from tests.support.flaky import Flaky


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
