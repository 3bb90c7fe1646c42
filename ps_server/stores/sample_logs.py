"""Logs of sample streams in this process's memory and in a directory."""

# ruff: noqa: D102 - the methods are documented in ps_server/core/sample_log.py
from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path

from ps_server.core.sample_log import LogEntry
from ps_server.stores.row_files import write_file


class MemoryLog:
    """A LogStore that lasts as long as the process."""

    durable = False

    def __init__(self) -> None:
        self._entries: deque[LogEntry] = deque()

    def last(self) -> LogEntry | None:
        return self._entries[-1] if self._entries else None

    def append(self, entry: LogEntry) -> None:
        self._entries.append(entry)

    def read(self) -> Iterator[LogEntry]:
        return iter(tuple(self._entries))

    def trim(self, position: int) -> None:
        while self._entries and self._entries[0].end <= position and not self._entries[0].closes:
            self._entries.popleft()

    def clear(self) -> None:
        self._entries.clear()


class DirectoryLog:
    """A LogStore of one file per entry, named by its position and number of samples."""

    durable = True

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def last(self) -> LogEntry | None:
        return max(self._entries(), key=_order, default=None)

    def append(self, entry: LogEntry) -> None:
        write_file(self._path(entry), lambda file: file.write(entry.batch))

    def read(self) -> Iterator[LogEntry]:
        for entry in sorted(self._entries(), key=_order):
            yield LogEntry(entry.position, entry.samples, self._path(entry).read_bytes())

    def trim(self, position: int) -> None:
        for entry in self._entries():
            if entry.end <= position and not entry.closes:
                self._path(entry).unlink()

    def clear(self) -> None:
        for entry in self._entries():
            self._path(entry).unlink()

    def _entries(self) -> list[LogEntry]:
        """Without their batches, in no order."""
        if not self._directory.exists():
            return []
        names = (path.name.split("-") for path in self._directory.iterdir() if path.suffix != ".draft")
        return [LogEntry(int(position), int(samples)) for position, samples in names]

    def _path(self, entry: LogEntry) -> Path:
        return self._directory / f"{entry.position}-{entry.samples}"


def _order(entry: LogEntry) -> tuple[int, bool]:
    return entry.end, entry.closes
