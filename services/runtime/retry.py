"""Retries: pauses that double up to a bound, until the caller's patience ends."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from esd.services.domain.errors import DeadlineExceeded, EsdError, Loading, Unavailable

FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 1.0

# The errors of a peer that is away: if it hangs, or packets are lost, only the deadline reveals it.
AWAY = (Unavailable, DeadlineExceeded)

T = TypeVar("T")


class Backoff:
    """The pauses between the attempts at one call.

        backoff = Backoff(patience=30)
        while True:
            try:
                return await call()
            except Unavailable as error:
                await backoff.pause(error)

    Patience begins with a failure: a call may have run for long before it broke, and a process that was suspended
    meanwhile deserves another attempt. It begins again with each progress of a server that loads its rows, however many
    there are.

    Each pause is up to twice as long as the one before and at most a second. Jitter keeps a crowd of workers from
    coming back all at once.

    Args:
        patience: seconds from the first failure after the start or a `reset`; a failure after that is final.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._progress = ""  # of a server that loads
        self.reset()

    def reset(self) -> None:
        """Starts over after a success, with the shortest pause and with full patience."""
        self._longest = FIRST_PAUSE_SECONDS
        self._give_up: float | None = None

    async def pause(self, error: Exception) -> None:
        """Waits before the next attempt. Raises `error`, the failure of the last attempt, when patience has ended."""
        await asyncio.sleep(self.next(error))

    def next(self, error: Exception) -> float:
        """Returns the seconds to wait, for callers that do not wait through `pause`. Raises `error` as `pause` does."""
        now = time.monotonic()
        if isinstance(error, Loading) and str(error) != self._progress:
            self._progress, self._give_up = str(error), None
        if self._give_up is None:
            self._give_up = now + self._patience
        if now + self._longest >= self._give_up:
            raise error
        seconds = random.uniform(self._longest / 2, self._longest)  # noqa: S311 - no secret
        self._longest = min(2 * self._longest, LONGEST_PAUSE_SECONDS)
        return seconds


async def repeated(
    call: Callable[[], Awaitable[T]], patience: float, on: type[EsdError] | tuple[type[EsdError], ...] = Unavailable
) -> T:
    """Makes an idempotent call, retries it while it fails, and returns its result.

    Args:
        call: the call.
        patience: seconds from the first failure during which the call is retried; then the last error is raised.
        on: the errors after which it is retried; any other error is raised at once.
    """
    backoff = Backoff(patience)
    while True:
        try:
            return await call()
        except on as error:
            await backoff.pause(error)
