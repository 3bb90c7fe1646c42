"""Files of rows, one per cut: all rows of the cut, or only those that have changed since an earlier cut.

    magic, earlier cut (0: the file has all rows)
    blocks of: number of rows, ids, versions, rows; an empty block ends them
    SHA-256 of everything before

All numbers are little-endian. A row that was removed since the earlier cut is listed at version 0. A file gets its name
when it is complete and on disk.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from esd.ps_server.stores.directory.disk import disk_errors, write_file
from esd.ps_server.stores.row_streams import first_of_each
from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.rows import RowBlock

_MAGIC = b"ESDROWS1"
_DIGEST_BYTES = hashlib.sha256().digest_size
_SYNCED_BYTES = 32 << 20  # written before they are synced, so that no sync of another file waits for a whole checkpoint
_NAME = re.compile(r"rows-[0-9]+")


def _ignore(_: int) -> None:
    """Takes the bytes that were read, where nothing shows the progress."""


def row_file(directory: Path, cut: int) -> Path:
    """Returns the file of a cut."""
    return directory / f"rows-{cut}"


def row_files(directory: Path) -> set[Path]:
    """Returns all files of rows in a directory."""
    return {path for path in directory.glob("rows-*") if _NAME.fullmatch(path.name)}


def chain_of(directory: Path, cut: int) -> list[Path]:
    """Lists the files that a cut consists of, the latest first. Raises FailedPrecondition if one is unusable."""
    paths = []
    while cut:
        paths.append(row_file(directory, cut))
        cut = _earlier_cut(paths[-1])
    return paths


def rows_in(path: Path, width: int) -> int:
    """Returns the number of rows of W floats that fill a file of this size, at most a few more than it has."""
    return path.stat().st_size // (16 + 4 * width)


def verified_chain(directory: Path, cut: int, seen: Callable[[int], object] = _ignore) -> list[Path]:
    """Lists the files that a cut consists of, the latest first. Raises FailedPrecondition if one is damaged."""
    chain = chain_of(directory, cut)
    for path in chain:
        with disk_errors(path):
            _verify(path, seen)
    return chain


def stored_rows(directory: Path, cut: int, width: int) -> Iterator[RowBlock]:
    """Yields the rows of a cut, W floats each, from its files. Raises FailedPrecondition if a file is damaged."""
    chain = verified_chain(directory, cut)
    return first_of_each(block for path in chain for block in _read_rows(path, width))


def stored_changes(
    directory: Path, cut: int, width: int, seen: Callable[[int], object] = _ignore
) -> Iterator[RowBlock]:
    """Yields the changes that lead from an empty table to the rows of a cut, in their order; version 0 for a removal.

    All files are read twice: before this returns their checksums are verified. `seen` gets the bytes of each piece that
    was read.

    Raises:
        FailedPrecondition: a file is damaged.
    """
    chain = verified_chain(directory, cut, seen)
    return (block for path in reversed(chain) for block in _read_rows(path, width, seen))


def write_rows(path: Path, earlier: int, blocks: Iterable[RowBlock]) -> tuple[int, int]:
    """Writes the file of a cut that builds on an `earlier` one (0: on none); returns its number of rows and bytes."""
    count = 0

    def write(file: BinaryIO) -> None:
        nonlocal count
        digest = hashlib.sha256()
        unsynced = 0

        def put(data: bytes) -> None:
            nonlocal unsynced
            digest.update(data)
            file.write(data)
            unsynced += len(data)
            if unsynced > _SYNCED_BYTES:
                file.flush()
                os.fdatasync(file.fileno())
                unsynced = 0

        put(_MAGIC + np.uint64(earlier).tobytes())
        for block in blocks:
            if len(block):
                put(np.uint64(len(block)).tobytes())
                for column in (block.ids, block.versions, block.rows):
                    put(column.tobytes())
                count += len(block)
        put(np.uint64(0).tobytes())
        file.write(digest.digest())

    write_file(path, write)
    return count, path.stat().st_size


def _earlier_cut(path: Path) -> int:
    """Returns the cut that a file builds on; 0: none."""
    if not path.exists():
        raise FailedPrecondition(f"{path} is missing")
    with path.open("rb") as file:
        head = file.read(len(_MAGIC) + 8)
    if len(head) < len(_MAGIC) + 8 or not head.startswith(_MAGIC):
        raise FailedPrecondition(f"{path} is not a file of rows of this version")
    return int(np.frombuffer(head[len(_MAGIC) :], np.uint64)[0])


def _verify(path: Path, seen: Callable[[int], object]) -> None:
    """Raises FailedPrecondition unless the file is unchanged since it was written."""
    digest = hashlib.sha256()
    left = path.stat().st_size - _DIGEST_BYTES
    with path.open("rb") as file:
        while left > 0 and (data := file.read(min(left, 1 << 20))):
            digest.update(data)
            left -= len(data)
            seen(len(data))
        if file.read() != digest.digest():
            raise FailedPrecondition(f"{path} is damaged: its checksum differs")


def _read_rows(path: Path, width: int, seen: Callable[[int], object] = _ignore) -> Iterator[RowBlock]:
    """Yields the rows of a verified file, W floats each."""
    with path.open("rb") as file:
        file.seek(len(_MAGIC) + 8)
        while count := int(np.frombuffer(file.read(8), np.uint64)[0]):
            ids = np.frombuffer(file.read(8 * count), np.uint64)
            versions = np.frombuffer(file.read(8 * count), np.int64)
            rows = np.frombuffer(file.read(4 * width * count), np.float32).reshape(count, width)
            seen((16 + 4 * width) * count)
            yield RowBlock(ids, versions, rows)
