"""A thing that goes wrong, and how much of it one call does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

AT_ONCE = 16  # streams


@dataclass(frozen=True, slots=True)
class Misdeed:
    """Something to do to a service, given its address; each call does it `times` times."""

    commit: Callable[[str], Awaitable[None]]
    times: int
