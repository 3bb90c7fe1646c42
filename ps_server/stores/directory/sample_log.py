"""The sample log of a table as files."""

# ruff: noqa: D102 - the methods are documented in ps_server/core/store.py
from __future__ import annotations

import re
from collections.abc import Iterator

from esd.ps_server.core.seal import LOG_REMEDY, sealed, unsealed
from esd.ps_server.stores.folders import Folder, read_bytes, write_bytes
from esd.services.domain.batches import LogEntry
from esd.services.domain.errors import FailedPrecondition

_ENTRY = re.compile(r"[0-9]{1,19}-[0-9]{1,19}")


class FileLog:
    """A LogStore of one file per entry, named by its position and number of samples."""

    durable = True

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def last(self) -> LogEntry | None:
        return max(self._entries(), key=_order, default=None)

    def append(self, entry: LogEntry) -> None:
        name = _name(entry)
        write_bytes(self._folder, name, sealed(name, entry.batch))

    def read(self) -> Iterator[LogEntry]:
        for entry in sorted(self._entries(), key=_order):
            name = _name(entry)
            batch = unsealed(name, read_bytes(self._folder, name) or b"", self._folder.place(name), LOG_REMEDY)
            yield LogEntry(entry.position, entry.samples, batch)

    def trim(self, position: int) -> None:
        for entry in sorted(self._entries(), key=_order):  # in order, so that no crash leaves a gap
            if entry.end <= position and not entry.closes:
                self._folder.remove(_name(entry))

    def clear(self) -> None:
        for name in self._folder.names():
            self._folder.remove(name)

    def _entries(self) -> list[LogEntry]:
        """Returns all entries without their batches, unordered."""
        entries = []
        for name in self._folder.names():
            if not _ENTRY.fullmatch(name):
                raise FailedPrecondition(
                    f"{self._folder.place(name)} is not an entry of a sample log; remove it from this folder"
                )
            position, samples = name.split("-")
            entries.append(LogEntry(int(position), int(samples)))
        return entries


def _name(entry: LogEntry) -> str:
    return f"{entry.position}-{entry.samples}"


def _order(entry: LogEntry) -> tuple[int, bool]:
    return entry.end, entry.closes
