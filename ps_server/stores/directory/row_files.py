"""Files of rows, one per cut: all rows of the cut, or only those that have changed since an earlier cut.

    magic, earlier cut (0: the file has all rows)
    blocks of: number of rows, ids, versions, rows; an empty block ends them
    SHA-256 of everything before

All numbers are little-endian. A row that has gone since the earlier cut is there at version 0. A file gets its name
when it is complete and on disk.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ps_server.stores.row_streams import first_of_each
from services.domain.errors import FailedPrecondition, StorageUnwritable
from services.domain.rows import RowBlock

_MAGIC = b"ESDROWS1"
_DIGEST_BYTES = hashlib.sha256().digest_size
_NAME = re.compile(r"rows-[0-9]+")
_drafts = itertools.count()  # when threads write one file at the same time, the one that ends last counts


def row_file(directory: Path, cut: int) -> Path:
    """Returns the file of a cut."""
    return directory / f"rows-{cut}"


def row_files(directory: Path) -> set[Path]:
    """Returns all files of rows in a directory."""
    return {path for path in directory.glob("rows-*") if _NAME.fullmatch(path.name)}


def chain_of(directory: Path, cut: int) -> list[Path]:
    """Lists the files that make a cut, the latest first. Raises FailedPrecondition if one is missing or is another."""
    paths = []
    while cut:
        paths.append(row_file(directory, cut))
        cut = _earlier_cut(paths[-1])
    return paths


def stored_rows(directory: Path, cut: int, width: int) -> Iterator[RowBlock]:
    """Yields the rows of a cut, W floats each, from its files. Raises FailedPrecondition if one of them is damaged."""
    chain = chain_of(directory, cut)
    for path in chain:
        with disk_errors(path):
            _verify(path)
    return first_of_each(block for path in chain for block in _read_rows(path, width))


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
    """Writes a file as a whole: after a crash it is there complete, or as it was before. Raises as `disk_errors`."""
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f"{path.name}.{os.getpid()}-{next(_drafts)}.draft")
        try:
            with draft.open("wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        except BaseException:
            with suppress(OSError):
                draft.unlink(missing_ok=True)  # what it takes on a full disk may be what is lacking
            raise
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def read_bytes(path: Path) -> bytes | None:
    """Returns what a small file holds, None if there is none. Raises FailedPrecondition if it cannot be read."""
    with disk_errors(path):
        return path.read_bytes() if path.exists() else None


def remove(path: Path) -> None:
    """Removes a file, if it is there. Raises as `disk_errors`."""
    with disk_errors(path):
        path.unlink(missing_ok=True)


def write_bytes(path: Path, data: bytes) -> None:
    """Writes a small file as a whole."""
    write_file(path, lambda file: file.write(data))


def write_rows(path: Path, earlier: int, blocks: Iterable[RowBlock]) -> tuple[int, int]:
    """Writes the file of a cut that builds on an `earlier` one (0: on none); how many rows and bytes it has."""
    count = 0

    def write(file: BinaryIO) -> None:
        nonlocal count
        digest = hashlib.sha256()

        def put(data: bytes) -> None:
            digest.update(data)
            file.write(data)

        put(_MAGIC + np.uint64(earlier).tobytes())
        for block in blocks:
            if len(block):
                put(np.uint64(len(block)).tobytes())
                put(block.ids.tobytes() + block.versions.tobytes() + block.rows.tobytes())
                count += len(block)
        put(np.uint64(0).tobytes())
        file.write(digest.digest())

    write_file(path, write)
    return count, path.stat().st_size


def _earlier_cut(path: Path) -> int:
    """Returns the cut that a file builds on, 0 for none."""
    if not path.exists():
        raise FailedPrecondition(f"{path} is missing")
    with path.open("rb") as file:
        head = file.read(len(_MAGIC) + 8)
    if len(head) < len(_MAGIC) + 8 or not head.startswith(_MAGIC):
        raise FailedPrecondition(f"{path} is not a file of rows of this version")
    return int(np.frombuffer(head[len(_MAGIC) :], np.uint64)[0])


def _verify(path: Path) -> None:
    """Raises FailedPrecondition unless the file is as it was written."""
    digest = hashlib.sha256()
    left = path.stat().st_size - _DIGEST_BYTES
    with path.open("rb") as file:
        while left > 0 and (data := file.read(min(left, 1 << 20))):
            digest.update(data)
            left -= len(data)
        if file.read() != digest.digest():
            raise FailedPrecondition(f"{path} is damaged: its checksum differs")


def _read_rows(path: Path, width: int) -> Iterator[RowBlock]:
    """Yields the rows of a file that was verified; W floats each."""
    with path.open("rb") as file:
        file.seek(len(_MAGIC) + 8)
        while count := int(np.frombuffer(file.read(8), np.uint64)[0]):
            ids = np.frombuffer(file.read(8 * count), np.uint64)
            versions = np.frombuffer(file.read(8 * count), np.int64)
            rows = np.frombuffer(file.read(4 * width * count), np.float32).reshape(count, width)
            yield RowBlock(ids, versions, rows)
