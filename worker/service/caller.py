"""The thread that trains: it asks for steps, and between them it makes the calls of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

from esd.services.domain.errors import EsdError, FailedPrecondition
from esd.worker.training.step import Step, StepResult

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(slots=True)
class _Call:
    function: Callable[[], Any]
    future: Future[Any]
    steps: bool = False  # it makes a step, whose result comes when the caller asks for the next one


@dataclass(slots=True)
class _End:
    error: EsdError | Exception | None


class Caller(Executor):
    """Makes the calls of an event loop in the thread that trains, whenever that thread asks for its next step.

    torch's thread count and current device belong to a thread, so everything of torch happens in this one, apart from
    copying rows out of the cache. The event loop waits for each call before it submits another, so few of them wait.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[_Call | _End] = SimpleQueue()
        self._given: tuple[Step, Future[StepResult]] | None = None
        self._failed: EsdError | None = None

    # --- of the event loop ---------------------------------------------------------------------------------------

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Has a call made as soon as the thread asks for the next step."""
        future: Future[T] = Future()
        self._put(_Call(partial(fn, *args, **kwargs), future))
        return future

    async def train(self, begin: Callable[[], Step]) -> StepResult:
        """Gives the thread a step, which it makes itself, and returns its result.

        Raises:
            FailedPrecondition: the loop has failed, or has left out a part of the step.
            Unavailable: another worker was lost or late.
        """
        future: Future[StepResult] = Future()
        self._put(_Call(begin, future, steps=True))
        return await asyncio.wrap_future(future)

    def end(self, error: Exception | None = None) -> None:
        """Ends the steps after the calls that wait, in order or with an error."""
        self._calls.put(_End(error))

    def _put(self, call: _Call) -> None:
        self._calls.put(call)
        if self._failed is not None:  # the thread makes no calls any more
            self._refuse_all(self._failed)

    # --- of the thread -------------------------------------------------------------------------------------------

    def next_step(self) -> Step | None:
        """Makes the calls that wait, and returns the next step; None when there are no more.

        Raises:
            EsdError: the steps have ended out of order.
        """
        self._settle()
        while True:
            call = self._calls.get()
            if isinstance(call, _End):
                self._calls.put(call)  # for a thread that asks again
                if call.error is not None:
                    raise call.error
                return None
            if not call.future.set_running_or_notify_cancel():
                continue
            try:
                result = call.function()
            except BaseException as error:
                call.future.set_exception(error)
                if not isinstance(error, Exception):  # such as Ctrl-C: it is this thread's
                    raise
            else:
                if call.steps:
                    self._given = result, call.future
                    return result  # type: ignore[no-any-return]
                call.future.set_result(result)
            del call  # what it holds, such as caches, goes before the next one comes

    def fail(self, error: Exception) -> bool:
        """Tells the event loop that the training loop has failed in the step that it was given, if there is one.

        No further call is made: each fails with the same error.
        """
        given, self._given = self._given, None
        if given is None:
            return False
        step, future = given
        if not isinstance(error, EsdError):
            error = FailedPrecondition(
                f"the training loop fails in iteration {step.iteration}: {type(error).__name__}: {error}"
            )
        self._failed = error
        future.set_exception(error)
        self._refuse_all(error)
        return True

    def _refuse_all(self, error: EsdError) -> None:
        with suppress(Empty):
            while True:
                call = self._calls.get_nowait()
                if isinstance(call, _Call) and call.future.set_running_or_notify_cancel():
                    call.future.set_exception(error)

    def _settle(self) -> None:
        """Tells the result of the step that was given last."""
        given, self._given = self._given, None
        if given is None:
            return
        step, future = given
        try:
            future.set_result(step.result())
        except EsdError as error:
            future.set_exception(error)
