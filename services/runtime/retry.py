"""Repeating what failed for want of a peer."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from services.domain.errors import EsdError, Unavailable

_FIRST_PAUSE = 0.05  # seconds
_LONGEST_PAUSE = 1.0

T = TypeVar("T")


async def repeated(
    call: Callable[[], Awaitable[T]], seconds: float, on: type[EsdError] | tuple[type[EsdError], ...] = Unavailable
) -> T:
    """The result of `call`, which is made again for up to `seconds` while it fails with an error of class `on`.

    The call must be idempotent. The last error is raised when the time is up. Pauses double up to a second, with
    jitter, so that a crowd of workers does not come back all at once.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + seconds
    longest = _FIRST_PAUSE
    while True:
        try:
            return await call()
        except on:
            if clock() + longest >= deadline:
                raise
        await asyncio.sleep(random.uniform(longest / 2, longest))  # noqa: S311 - no secret
        longest = min(2 * longest, _LONGEST_PAUSE)
