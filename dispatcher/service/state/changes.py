"""Waiting for a condition over the state of one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Changes:
    """Wakes the coroutines that wait for a condition whenever the state it looks at has changed.

    A condition variable for a single event loop: state changes between two awaits are atomic anyway, so no
    lock is needed, and timer callbacks may notify as well.
    """

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def notify(self) -> None:
        """Lets every waiter look at the state again."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Returns once the condition holds. What the condition raises ends the wait."""
        while not condition():
            await self._changed.wait()
