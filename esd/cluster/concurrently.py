"""Makes a call for several machines at once: most of the time goes to their links, and each has its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from esd.services.domain.errors import EsdError
from esd.services.runtime.threads import named_threads

T = TypeVar("T")
R = TypeVar("R")

# Each copy of an image takes as much of this machine's disk meanwhile as the image is large.
AT_ONCE = 4


def for_each(do: Callable[[T], R], things: Iterable[T]) -> list[R]:
    """Calls `do` with every thing, up to AT_ONCE at a time, and returns the results in the order of the things.

    Raises:
        EsdError: a call fails; the others end first. Of several the error is the first one's, with all messages.
    """
    with named_threads("esd-engine", AT_ONCE) as threads:
        calls = [threads.submit(do, thing) for thing in things]
    errors = [error for call in calls if isinstance(error := call.exception(), EsdError)]
    if len(errors) > 1:
        raise type(errors[0])("\n".join(map(str, errors)))
    return [call.result() for call in calls]
