"""The log of one job's sample stream, kept for the dispatcher: entries join without gaps, repetitions are ignored."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from esd.ps_server.core.history import CheckpointHistory
from esd.ps_server.core.seal import LOG_REMEDY
from esd.ps_server.core.store import LogStore
from esd.services.domain.batches import LogEntry
from esd.services.domain.errors import FailedPrecondition, InvalidArgument

_LONGEST_STREAM = 2**63 - 1  # samples


class SampleLog:
    """The sample log of one table. Thread-safe. Every method raises StaleEpoch unless `epoch` is the table's epoch."""

    def __init__(self, store: LogStore, history: CheckpointHistory, table: str) -> None:
        self._store = store
        self._history = history
        self._table = table
        self._lock = threading.Lock()
        self._last: LogEntry | None = None  # without its batch
        self._known = False  # whether `_last` is the store's last entry

    @property
    def durable(self) -> bool:
        """Whether an entry outlives this process once `append` has returned."""
        return self._store.durable

    def append(self, entry: LogEntry, epoch: int) -> None:
        """Adds an entry after the last one; a repeated entry is ignored. The first entry may begin at any position.

        Raises:
            InvalidArgument: only one of `samples` and the batch is empty, or the stream exceeds 2^63-1 samples.
            FailedPrecondition: the entry does not begin where the log ends, or the stream has ended.
            StaleEpoch: `epoch` is not the table's epoch.
        """
        with self._history.in_epoch(epoch):
            if entry.closes != (not entry.batch):
                raise InvalidArgument(f"an entry of {entry.samples} samples has a batch of {len(entry.batch)} bytes")
            if entry.end > _LONGEST_STREAM:
                raise InvalidArgument(f"an entry ends at sample {entry.end}, a stream has at most {_LONGEST_STREAM}")
            with self._changing():
                if self._last is not None and self._is_there(entry, self._last):
                    return
                self._store.append(entry)
                self._last = LogEntry(entry.position, entry.samples)

    def read(self, epoch: int) -> Iterator[LogEntry]:
        """Reads all entries in order.

        Raises:
            StaleEpoch: `epoch` is not the table's epoch.
            FailedPrecondition: an entry is damaged or missing; raised by the iterator.
        """
        self._history.check_epoch(epoch)
        return self._joined()

    def trim(self, position: int, epoch: int) -> None:
        """Drops the entries whose samples all lie before `position`. The mark of the stream's end stays."""
        with self._history.in_epoch(epoch), self._changing():
            self._store.trim(position)

    def clear(self, epoch: int) -> None:
        """Drops all entries; the next one may begin anywhere."""
        with self._history.in_epoch(epoch), self._changing():
            self._store.clear()
            self._last = None

    def _joined(self) -> Iterator[LogEntry]:
        end: int | None = None
        for entry in self._store.read():
            if end not in (None, entry.position):
                raise FailedPrecondition(
                    f"the sample log of table {self._table!r} lacks the samples from {end} to {entry.position}. "
                    f"{LOG_REMEDY}"
                )
            end = entry.end
            yield entry

    def _is_there(self, entry: LogEntry, last: LogEntry) -> bool:
        """Returns whether an entry repeats the last one. Raises FailedPrecondition if it does not follow it either."""
        if (entry.position, entry.samples) == (last.position, last.samples):
            return True
        if last.closes or entry.position != last.end:
            raise FailedPrecondition(
                f"the sample log of table {self._table!r} {'was closed' if last.closes else 'ends'} at "
                f"{last.end}, an entry of {entry.samples} samples at {entry.position} does not follow"
            )
        return False

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Surrounds a change of the store.

        If a change breaks off, the state of the store is unknown, so the next change asks the store again.
        """
        with self._lock:
            if not self._known:
                self._last = self._store.last()
            self._known = False
            try:
                yield
            except FailedPrecondition:
                self._known = True  # refused before the store was changed
                raise
            self._known = True
