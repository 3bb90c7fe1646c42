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
    """Runs coroutines concurrently, and returns their results. The first failure cancels the others and is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in coroutines]
    except BaseExceptionGroup as failures:
        raise first_failure(failures) from None
    return [task.result() for task in tasks]


def is_cancelled() -> bool:
    """Returns whether the running task itself was cancelled.

    A task that was not cancelled may meet a CancelledError, too: the error of another task, or of a thread's work,
    whose result it awaits.
    """
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def first_failure(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """Returns the error that came first in a task group."""
    first = failures.exceptions[0]
    return first_failure(first) if isinstance(first, BaseExceptionGroup) else first


def settle(answer: asyncio.Future[None], error: BaseException | None) -> None:
    """Sets the result of a future, or its error, unless its caller has cancelled it. The error need not be awaited."""
    if answer.done():
        return
    if error is None:
        answer.set_result(None)
    else:
        answer.set_exception(error)
        answer.exception()  # marks it as retrieved
