"""Things that run side by side."""

import asyncio
import contextlib

import pytest

from esd.services.domain.errors import Unavailable
from esd.services.runtime.tasks import all_of, any_of, is_cancelled
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


async def test_after_a_failure_the_caller_does_not_count_as_cancelled():
    fails = asyncio.get_running_loop().create_future()

    async def wait():
        await fails

    asyncio.get_running_loop().call_soon(fails.set_exception, Unavailable("gone"))
    with pytest.raises(Unavailable, match="gone"):
        await all_of([wait()])
    assert not is_cancelled()


@pytest.mark.parametrize("run", [all_of, any_of], ids=["all", "any"])
async def test_a_caller_that_is_cancelled_is_so_though_a_task_fails_in_the_same_moment(run):
    """Otherwise a loop that tries again after failures would go on."""
    fails, began, ended = asyncio.get_running_loop().create_future(), asyncio.Event(), asyncio.Event()

    async def wait():
        began.set()
        await fails

    async def end():
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    waiting = asyncio.create_task(run([wait(), end()]))
    await began.wait()
    fails.set_exception(Unavailable("gone"))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert ended.is_set()


async def test_the_first_that_ends_cancels_the_others_and_only_its_failure_is_raised():
    async def wait():
        try:
            await asyncio.Event().wait()
        finally:
            raise Unavailable("cancelled")

    async def end():
        await asyncio.sleep(0)

    await any_of([wait(), end()])
    with pytest.raises(Unavailable, match="gone"):
        await any_of([wait(), Flaky(Unavailable("gone")).call()])


async def test_a_failure_in_a_task_group_is_raised_bare_with_its_cause():
    async def fail():
        raise Unavailable("gone") from ValueError("the reason")

    async def nest():
        async with asyncio.TaskGroup() as inner:
            inner.create_task(fail())

    with pytest.raises(Unavailable, match="gone") as raised:
        await any_of([nest(), asyncio.Event().wait()])
    assert isinstance(raised.value.__cause__, ValueError)


async def test_of_several_failures_in_one_moment_that_of_the_first_task_is_raised():
    fails = asyncio.get_running_loop().create_future()

    async def wait(name):
        with contextlib.suppress(ValueError):
            await asyncio.shield(fails)
        raise Unavailable(name)

    asyncio.get_running_loop().call_soon(fails.set_exception, ValueError())
    with pytest.raises(Unavailable, match="first"):
        await all_of([wait("first"), wait("second")])
