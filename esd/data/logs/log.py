"""The interface of a log to its reader, and the patience with a server that is away."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from esd.services.domain.errors import Unavailable

PATIENCE_SECONDS = 300.0  # with a server that is away, as long as drivers have with a dispatcher
_LEAST_PAUSE, _MOST_PAUSE = 0.05, 2.0  # seconds

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a log.

    Attributes:
        name: its position, for people.
        value: its content, or its fields by name, where the kind of log has such.
    """

    name: str
    value: bytes | Mapping[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some messages that follow each other in one partition of a log.

    Attributes:
        position: from here on, the log gives these messages first, each time it is read; `:` is not in it.
        messages: at least one.
        lag: messages that waited behind them; None: unknown.
    """

    position: str
    messages: Sequence[Message]
    lag: int | None


class LogReader(Protocol):
    """A log that is read from a position on."""

    def read(self, most: int) -> Chunk | None:
        """Waits for messages, and returns at most `most` of them; None: the log is read to its bound.

        Raises:
            FailedPrecondition: the log has dropped messages that were not read.
            Unavailable: the server is away for too long.
        """
        ...

    def close(self) -> None:
        """Closes the connection."""
        ...


class Log(Protocol):
    """A log on a server."""

    def check(self) -> None:
        """Looks whether the log is there.

        Raises:
            InvalidArgument: it is not, or its bounds are wrong.
            Unavailable: the server is away for too long.
        """
        ...

    def reader(self, position: str | None) -> LogReader:
        """Returns a reader from a position on; None: from the log's first message, or from its bound.

        Raises:
            InvalidArgument: the position is of another kind of log.
        """
        ...


def patiently(call: Callable[[], T], away: tuple[type[Exception], ...], where: str) -> T:
    """Makes a call, again and again while the server is away.

    Args:
        call: reads, and changes nothing.
        away: the errors of a server that is away.
        where: names the log.

    Raises:
        Unavailable: it is away for too long.
    """
    began, pause = time.monotonic(), _LEAST_PAUSE
    while True:
        try:
            return call()
        except away as error:
            if time.monotonic() - began > PATIENCE_SECONDS:
                raise Unavailable(f"{where}: its server is away for {PATIENCE_SECONDS:g} s: {error}") from error
        time.sleep(pause)
        pause = min(2 * pause, _MOST_PAUSE)
