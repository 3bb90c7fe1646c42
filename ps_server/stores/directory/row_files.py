"""Files of rows, one per cut: all rows of the cut, or only those that have changed since an earlier cut.

    magic, earlier cut (0: the file has all rows)
    blocks of: number of rows, ids, versions, rows; an empty block ends them
    SHA-256 of everything before

All numbers are little-endian. A row that was removed since the earlier cut is listed at version 0. A file gets its name
when it is complete and on disk.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from esd.ps_server.stores.folders import Folder, Writable
from esd.ps_server.stores.row_streams import first_of_each
from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.rows import RowBlock

_MAGIC = b"ESDROWS1"
_DIGEST_BYTES = hashlib.sha256().digest_size
_NAME = re.compile(r"rows-[0-9]+")


def _ignore(_: int) -> None:
    """Takes the bytes that were read, where nothing shows the progress."""


def row_file(cut: int) -> str:
    """Returns the name of the file of a cut."""
    return f"rows-{cut}"


def row_files(folder: Folder) -> set[str]:
    """Returns the names of all files of rows in a folder."""
    return {name for name in folder.names() if _NAME.fullmatch(name)}


def chain_of(folder: Folder, cut: int) -> list[str]:
    """Lists the files that a cut consists of, the latest first. Raises FailedPrecondition if one is unusable."""
    names = []
    while cut:
        names.append(row_file(cut))
        cut = _earlier_cut(folder, names[-1])
    return names


def rows_in(folder: Folder, name: str, width: int) -> int:
    """Returns the number of rows of W floats that fill a file of this size, at most a few more than it has."""
    return (folder.size(name) or 0) // (16 + 4 * width)


def verified_chain(folder: Folder, cut: int, seen: Callable[[int], object] = _ignore) -> list[str]:
    """Lists the files that a cut consists of, the latest first. Raises FailedPrecondition if one is damaged."""
    chain = chain_of(folder, cut)
    for name in chain:
        _verify(folder, name, seen)
    return chain


def stored_rows(folder: Folder, cut: int, width: int) -> Iterator[RowBlock]:
    """Yields the rows of a cut, W floats each, from its files. Raises FailedPrecondition if a file is damaged."""
    chain = verified_chain(folder, cut)
    return first_of_each(block for name in chain for block in _read_rows(folder, name, width))


def stored_changes(folder: Folder, cut: int, width: int, seen: Callable[[int], object] = _ignore) -> Iterator[RowBlock]:
    """Yields the changes that lead from an empty table to the rows of a cut, in their order; version 0 for a removal.

    All files are read twice: before this returns their checksums are verified. `seen` gets the bytes of each piece that
    was read.

    Raises:
        FailedPrecondition: a file is damaged.
    """
    chain = verified_chain(folder, cut, seen)
    return (block for name in reversed(chain) for block in _read_rows(folder, name, width, seen))


def write_rows(folder: Folder, cut: int, earlier: int, blocks: Iterable[RowBlock]) -> tuple[int, int]:
    """Writes the file of a cut that builds on an `earlier` one (0: on none); returns its number of rows and bytes."""
    count = 0

    def write(file: Writable) -> None:
        nonlocal count
        digest = hashlib.sha256()

        def put(data: bytes) -> None:
            digest.update(data)
            file.write(data)

        put(_MAGIC + np.uint64(earlier).tobytes())
        for block in blocks:
            if len(block):
                put(np.uint64(len(block)).tobytes())
                for column in (block.ids, block.versions, block.rows):
                    put(column.tobytes())
                count += len(block)
        put(np.uint64(0).tobytes())
        file.write(digest.digest())

    size = folder.write(row_file(cut), write)
    return count, size


def _earlier_cut(folder: Folder, name: str) -> int:
    """Returns the cut that a file builds on; 0: none."""
    if folder.size(name) is None:
        raise FailedPrecondition(f"{folder.place(name)} is missing")
    with folder.open(name) as file:
        head = file.read(len(_MAGIC) + 8)
    if len(head) < len(_MAGIC) + 8 or not head.startswith(_MAGIC):
        raise FailedPrecondition(f"{folder.place(name)} is not a file of rows of this version")
    return int(np.frombuffer(head[len(_MAGIC) :], np.uint64)[0])


def _verify(folder: Folder, name: str, seen: Callable[[int], object]) -> None:
    """Raises FailedPrecondition unless the file is unchanged since it was written."""
    digest = hashlib.sha256()
    left = (folder.size(name) or 0) - _DIGEST_BYTES
    with folder.open(name) as file:
        while left > 0 and (data := file.read(min(left, 1 << 20))):
            digest.update(data)
            left -= len(data)
            seen(len(data))
        if file.read() != digest.digest():
            raise FailedPrecondition(f"{folder.place(name)} is damaged: its checksum differs")


def _read_rows(folder: Folder, name: str, width: int, seen: Callable[[int], object] = _ignore) -> Iterator[RowBlock]:
    """Yields the rows of a verified file, W floats each."""
    with folder.open(name) as file:
        file.seek(len(_MAGIC) + 8)
        while count := int(np.frombuffer(file.read(8), np.uint64)[0]):
            ids = np.frombuffer(file.read(8 * count), np.uint64)
            versions = np.frombuffer(file.read(8 * count), np.int64)
            rows = np.frombuffer(file.read(4 * width * count), np.float32).reshape(count, width)
            seen((16 + 4 * width) * count)
            yield RowBlock(ids, versions, rows)
