"""The log of one job's sample stream, kept for the dispatcher: entries join without gaps, a repeated one is ignored."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from services.domain.errors import FailedPrecondition, InvalidArgument

_LONGEST_STREAM = 2**63 - 1  # samples


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A piece of the stream.

    Attributes:
        position: samples of the stream before it.
        samples: k; 0: the stream ends here.
        batch: the samples, as the dispatcher wrote them.
    """

    position: int
    samples: int
    batch: bytes = b""

    @property
    def end(self) -> int:
        """Samples of the stream before what follows it."""
        return self.position + self.samples

    @property
    def closes(self) -> bool:
        """Whether nothing follows it."""
        return self.samples == 0


class LogStore(Protocol):
    """Where a log's entries are kept, in order. Only one thread calls at a time."""

    @property
    def durable(self) -> bool:
        """Whether an entry outlives this process once `append` has returned."""

    def last(self) -> LogEntry | None:
        """The last entry, perhaps without its batch; None when there is none."""

    def append(self, entry: LogEntry) -> None:
        """Adds an entry behind the last one. One that is there is not added twice."""

    def read(self) -> Iterator[LogEntry]:
        """All entries."""

    def trim(self, position: int) -> None:
        """Drops the entries whose samples all lie before `position`. The mark of the stream's end stays."""

    def clear(self) -> None:
        """Drops all entries."""


class SampleLog:
    """The log of one table's job. Thread-safe."""

    def __init__(self, store: LogStore, table: str) -> None:
        self._store = store
        self._table = table
        self._lock = threading.Lock()
        self._last: LogEntry | None = None  # without its batch
        self._known = False  # whether `_last` is what the store has

    def append(self, entry: LogEntry) -> None:
        """Adds an entry behind the last one; one that is there already is ignored. The first may be anywhere.

        Raises:
            InvalidArgument: a batch without samples, samples without a batch, or more than any stream has.
            FailedPrecondition: it does not begin where the log ends, or the stream has ended.
        """
        if entry.closes != (not entry.batch):
            raise InvalidArgument(f"an entry of {entry.samples} samples has a batch of {len(entry.batch)} bytes")
        if entry.end > _LONGEST_STREAM:
            raise InvalidArgument(f"an entry ends at sample {entry.end}, a stream has at most {_LONGEST_STREAM}")
        with self._changing():
            last = self._last
            if last is not None:
                if (entry.position, entry.samples) == (last.position, last.samples):
                    return
                if last.closes or entry.position != last.end:
                    raise FailedPrecondition(
                        f"the sample log of table {self._table!r} {'was closed' if last.closes else 'ends'} at "
                        f"{last.end}, an entry of {entry.samples} samples at {entry.position} does not follow"
                    )
            self._store.append(entry)
            self._last = LogEntry(entry.position, entry.samples)

    def read(self) -> Iterator[LogEntry]:
        """All entries, in order. Nothing may be appended or trimmed meanwhile."""
        return self._store.read()

    def trim(self, position: int) -> None:
        """Drops the entries whose samples all lie before `position`. The mark of the stream's end stays."""
        with self._changing():
            self._store.trim(position)

    def clear(self) -> None:
        """Drops all entries; the next one may begin anywhere."""
        with self._changing():
            self._store.clear()
            self._last = None

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Surrounds a change. After one that broke off nobody knows what the store has, so it is asked again."""
        with self._lock:
            if not self._known:
                self._last = self._store.last()
            self._known = False
            try:
                yield
            except FailedPrecondition:
                self._known = True  # refused before anything happened
                raise
            self._known = True
