"""Concurrent work: in threads, and in groups of tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Executor
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def run_in(thread: Executor, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Runs a blocking function in a thread, and returns its result."""
    return await asyncio.get_running_loop().run_in_executor(thread, lambda: function(*args, **kwargs))


async def all_of(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Runs coroutines concurrently, and returns their results. The first failure cancels the others and is raised.

    It takes the place of asyncio.TaskGroup, which in Python 3.11 leaves its caller marked as cancelled after some
    failures, and forgets that the caller is cancelled if a task fails in the same moment: a loop that tries again would
    go on.
    """
    return await _ended(coroutines, asyncio.FIRST_EXCEPTION)


async def any_of(coroutines: Iterable[Coroutine[Any, Any, object]]) -> None:
    """Runs coroutines concurrently until the first ends, and cancels the others. Its failure is raised."""
    await _ended(coroutines, asyncio.FIRST_COMPLETED)


async def _ended(coroutines: Iterable[Coroutine[Any, Any, T]], when: str) -> list[T]:
    """Returns the results of all that have ended by themselves. Of several failures, the first coroutine's counts."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    ended: set[asyncio.Task[T]] = set()
    try:
        if tasks:
            ended, _ = await asyncio.wait(tasks, return_when=when)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    own = [task for task in tasks if task in ended]
    for task in own:
        if not task.cancelled() and (failure := task.exception()) is not None:
            raise first_failure(failure)
    return [task.result() for task in own]


def is_cancelled() -> bool:
    """Returns whether the running task itself was cancelled.

    A task that was not cancelled may meet a CancelledError, too: the error of another task, or of a thread's work,
    whose result it awaits.
    """
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def first_failure(failure: BaseException) -> BaseException:
    """Returns the error that came first in a task group, also in groups of groups; another error is returned itself."""
    return first_failure(failure.exceptions[0]) if isinstance(failure, BaseExceptionGroup) else failure


def settle(answer: asyncio.Future[None], error: BaseException | None) -> None:
    """Sets the result of a future, or its error, unless its caller has cancelled it. The error need not be awaited."""
    if answer.done():
        return
    if error is None:
        answer.set_result(None)
    else:
        answer.set_exception(error)
        answer.exception()  # marks it as retrieved
