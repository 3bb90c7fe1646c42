"""The patience of a run with services that are away: how long it calls them again, and that it reports this at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from esd.run.events import Listener, Retrying
from esd.services.runtime.retry import AWAY, repeated

PATIENCE_SECONDS = 60.0  # with services that are away

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
