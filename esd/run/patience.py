"""The patience of a run with services that are away and with a user's code, and that it reports each wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from esd.run.events import Listener, Retrying, TakesLong
from esd.services.domain.errors import EsdError, NotFound, StorageUnwritable
from esd.services.runtime.retry import AWAY, Backoff

PATIENCE_SECONDS = 60.0  # with services that are away
ABSENT = (NotFound, StorageUnwritable, *AWAY)  # the errors of a job whose services are away, or lack it yet
_REPORTED_SECONDS = 5.0  # after which a wait for a user's code is reported, where it should be short

T = TypeVar("T")


class Patience:
    """Makes an idempotent call, and makes it again for a minute from the first failure on, while a service is away.

    Args:
        listener: gets `Retrying` after the first failure, so that the wait has a reason.
        on: the errors after which the call is made again.
    """

    def __init__(self, listener: Listener, on: tuple[type[EsdError], ...] = AWAY) -> None:
        self._listener = listener
        self._on = on
        self._backoff = Backoff(PATIENCE_SECONDS)
        self._reported = False

    def begin_anew(self) -> None:
        """Records that the service has answered: the next failure is the first one again."""
        self._backoff.reset()
        self._reported = False

    async def until_done(self, call: Callable[[], Awaitable[T]]) -> T:
        """Returns the result of the call.

        Raises:
            EsdError: the call fails for another reason, or the service is away for too long.
        """
        while True:
            try:
                return await call()
            except self._on as error:
                if not self._reported:
                    self._reported = True
                    self._listener(Retrying(str(error), PATIENCE_SECONDS))
                await self._backoff.pause(error)


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
