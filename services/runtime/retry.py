"""The one way to try again: pauses that double up to a bound, for as long as the caller has patience."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from esd.services.domain.errors import DeadlineExceeded, EsdError, Unavailable

FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 1.0

# What a peer that is away looks like: where it hangs, or packets are lost, nobody says so before the deadline.
AWAY = (Unavailable, DeadlineExceeded)

T = TypeVar("T")


class Backoff:
    """The pauses between the attempts at one thing.

        backoff = Backoff(patience=30)
        while True:
            try:
                return await call()
            except Unavailable as error:
                await backoff.pause(error)

    Patience begins with a failure: a call may have gone on for long before it broke, and a process that was suspended
    meanwhile deserves another attempt.

    Each pause is up to twice as long as the one before and at most a second. Jitter keeps a crowd of workers from
    coming back all at once.

    Args:
        patience: seconds from the first failure, or the first one after a `reset`, after which the next is final.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self.reset()

    def reset(self) -> None:
        """Begins anew after a success, with the shortest pause and with all the patience."""
        self._longest = FIRST_PAUSE_SECONDS
        self._give_up: float | None = None

    async def pause(self, error: Exception) -> None:
        """Waits before the next attempt. Raises `error`, the failure of the last one, when patience is at its end."""
        await asyncio.sleep(self.next(error))

    def next(self, error: Exception) -> float:
        """Returns the seconds to wait before the next attempt, for who does not wait by `pause`. Raises as it does."""
        now = time.monotonic()
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
    """Returns the result of `call`, which must be idempotent.

    Args:
        call: what to do.
        patience: seconds from the first failure for which the call is made again; then the last error is raised.
        on: the errors after which it is made again; any other is raised at once.
    """
    backoff = Backoff(patience)
    while True:
        try:
            return await call()
        except on as error:
            await backoff.pause(error)
