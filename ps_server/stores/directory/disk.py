"""Reads, writes and removes files of a checkpoint directory; its errors advise the operator."""

# ruff: noqa: D102 - the methods are documented in ps_server/stores/folders.py
from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from esd.ps_server.stores.folders import Writable
from esd.services.domain.errors import FailedPrecondition, StorageUnwritable
from esd.services.runtime.whole_files import DRAFT, write_whole

_SYNCED_BYTES = 32 << 20  # written before they are synced, so that no sync of another file waits for a whole checkpoint


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turns errors of the operating system into ours, with the path and advice.

    Raises:
        StorageUnwritable: the disk is full, over its quota or read-only, or the process has too many open files.
        FailedPrecondition: the file cannot be read or written for another reason.
    """
    try:
        yield
    except OSError as error:
        text = f"{path}: {error.strerror or error}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageUnwritable(f"{text}; make room on the disk of the checkpoint directory") from error
        if error.errno == errno.EROFS:
            raise StorageUnwritable(f"{text}; mount the checkpoint directory so that it can be written to") from error
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise StorageUnwritable(f"{text}; raise the limit of open files (ulimit -n)") from error
        raise FailedPrecondition(f"{text}; look at the checkpoint directory, its owner and its disk") from error


class DiskFolder:
    """A Folder on a disk, which need not exist yet; a written file is on the disk when `write` returns."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def place(self, name: str) -> str:
        return str(self._path / name)

    def names(self) -> set[str]:
        with disk_errors(self._path):
            found = self._path.iterdir() if self._path.exists() else ()
            return {path.name for path in found if path.suffix != DRAFT}

    def size(self, name: str) -> int | None:
        path = self._path / name
        with disk_errors(path):
            return path.stat().st_size if path.exists() else None

    @contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        path = self._path / name
        with disk_errors(path), path.open("rb") as file:
            yield file

    def write(self, name: str, write: Callable[[Writable], object]) -> int:
        path = self._path / name
        with disk_errors(path):
            write_whole(path, lambda file: write(_Synced(file)))
            return path.stat().st_size

    def remove(self, name: str) -> None:
        path = self._path / name
        with disk_errors(path):
            path.unlink(missing_ok=True)


class _Synced:
    """A file that is synced again and again while it is written."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._unsynced = 0

    def write(self, data: bytes) -> None:
        self._file.write(data)
        self._unsynced += len(data)
        if self._unsynced > _SYNCED_BYTES:
            self._file.flush()
            os.fdatasync(self._file.fileno())
            self._unsynced = 0
