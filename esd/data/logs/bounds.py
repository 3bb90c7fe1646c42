"""The bounds of a log whose messages have numbers: numbers, or times."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from esd.services.domain.errors import InvalidArgument

_NUMBER = re.compile(r"\d{1,18}")


@dataclass(frozen=True, slots=True)
class Number:
    """A bound by a message's number."""

    number: int


@dataclass(frozen=True, slots=True)
class Time:
    """A bound by time, in milliseconds since 1970."""

    milliseconds: int


Bound = Number | Time


def parse_bound(text: str, name: str, number: str) -> Bound | None:
    """Reads a bound of an address; None: it has none.

    Args:
        text: the bound; empty: there is none.
        name: of the bound.
        number: the name that the kind of log has for the number of a message.

    Raises:
        InvalidArgument: it is neither a number nor a time.
    """
    if not text:
        return None
    if _NUMBER.fullmatch(text):
        return Number(int(text))
    milliseconds = time_of(text)
    if milliseconds is None:
        raise InvalidArgument(
            f"{name}={text} is neither {number}, such as 1200, nor a time, such as 2026-11-20T08:00:00Z"
        )
    return Time(milliseconds)


def time_of(text: str) -> int | None:
    """Returns a time in milliseconds since 1970, in UTC unless the text says another zone; None: it is no time."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
