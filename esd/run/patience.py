"""The patience of a run with services that are away and with a user's code, and that it reports each wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from esd.run.events import Listener, Retrying, TakesLong
from esd.services.runtime.retry import AWAY, repeated

PATIENCE_SECONDS = 60.0  # with services that are away
_REPORTED_SECONDS = 5.0  # after which a wait for a user's code is reported, where it should be short

T = TypeVar("T")


async def patiently(call: Callable[[], Awaitable[T]], listener: Listener) -> T:
    """Makes an idempotent call, and repeats it for a minute while the service is away.

    Args:
        call: the call.
        listener: gets `Retrying` after the first failure, so that the wait has a reason.

    Raises:
        EsdError: the call fails for another reason, or the service is away for too long.
    """
    reported = False

    async def attempt() -> T:
        nonlocal reported
        try:
            return await call()
        except AWAY as error:
            if not reported:
                reported = True
                listener(Retrying(str(error), PATIENCE_SECONDS))
            raise

    return await repeated(attempt, PATIENCE_SECONDS, on=AWAY)


async def within(
    awaited: Awaitable[T], work: str, limit: float, listener: Listener, reported: float = _REPORTED_SECONDS
) -> T:
    """Waits for work in which a user's code runs, up to a limit.

    Args:
        awaited: the work, which is cancelled after the limit.
        work: the name of the work, for the event.
        limit: seconds.
        listener: gets `TakesLong` if the work takes long.
        reported: seconds after which it takes long.

    Raises:
        TimeoutError: it takes longer than the limit.
    """
    report = asyncio.get_running_loop().call_later(reported, listener, TakesLong(work, limit))
    try:
        async with asyncio.timeout(limit):
            return await awaited
    finally:
        report.cancel()
