"""The files of a checkpoint directory: read, written whole and removed, with errors that say what to do."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from esd.services.domain.errors import FailedPrecondition, StorageUnwritable
from esd.services.domain.whole_files import write_whole


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Raises our errors for those of the operating system: they name the path and what to do.

    Raises:
        StorageUnwritable: the disk is full, over its quota, or read-only; or the process has too many files open.
        FailedPrecondition: anything else that keeps a file from being read or written.
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


def write_file(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Writes a file as `write_whole` does. Raises as `disk_errors`."""
    with disk_errors(path):
        write_whole(path, write)


def write_bytes(path: Path, data: bytes) -> None:
    """Writes a small file whole. Raises as `disk_errors`."""
    write_file(path, lambda file: file.write(data))


def read_bytes(path: Path) -> bytes | None:
    """Returns what a small file holds, None if there is none. Raises FailedPrecondition if it cannot be read."""
    with disk_errors(path):
        return path.read_bytes() if path.exists() else None


def remove(path: Path) -> None:
    """Removes a file, if it is there. Raises as `disk_errors`."""
    with disk_errors(path):
        path.unlink(missing_ok=True)
