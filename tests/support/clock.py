"""The clock of an event loop, which a test puts forward: a minute takes no time, and a stall counts little."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

STEP_SECONDS = 3.0


class Clock:
    """The clock of the event loop that runs, from now on.

    Services and clients in this loop read it for leases and limits; gRPC has its own clock.

    Args:
        meanwhile: awaited after each step, such as a call that is answered after all events that have become due.
    """

    def __init__(self, meanwhile: Callable[[], Awaitable[object]]) -> None:
        self._loop = asyncio.get_running_loop()
        self._time = self._loop.time
        self._ahead = 0.0
        self._meanwhile = meanwhile
        self._loop.time = self._now  # type: ignore[method-assign]

    async def forward(self, seconds: float) -> None:
        """Lets time pass, in steps that are short beside the limits of minutes that such a test sets."""
        end = self._ahead + seconds
        while self._ahead < end:
            self._ahead = min(end, self._ahead + STEP_SECONDS)
            for _ in range(3):
                await self._meanwhile()

    def _now(self) -> float:
        return self._time() + self._ahead
