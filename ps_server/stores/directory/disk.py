"""Reads, writes and removes files of a checkpoint directory; its errors advise the operator."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from esd.services.domain.errors import FailedPrecondition, StorageUnwritable
from esd.services.runtime.whole_files import write_whole


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


def write_file(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Writes a file as `write_whole` does. Raises as `disk_errors`."""
    with disk_errors(path):
        write_whole(path, write)


def write_bytes(path: Path, data: bytes) -> None:
    """Writes a small file whole. Raises as `disk_errors`."""
    write_file(path, lambda file: file.write(data))


def read_bytes(path: Path) -> bytes | None:
    """Returns the content of a small file; None if it does not exist. Raises as `disk_errors`."""
    with disk_errors(path):
        return path.read_bytes() if path.exists() else None


def remove(path: Path) -> None:
    """Removes a file if it exists. Raises as `disk_errors`."""
    with disk_errors(path):
        path.unlink(missing_ok=True)
