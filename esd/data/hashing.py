"""Row ids from categorical values: (field, value) -> uint64, without a vocabulary pass.

This is the specification. It is stable for ever and equal on all platforms; a change raises READER_VERSION.

    hash(key, bytes) = fold mix64(h ^ word) over the little-endian 64-bit words of the bytes, the last word
                       padded with zeros, from h = mix64(key ^ (length * 0x9e3779b97f4a7c15 mod 2^64))
    field key        = hash(0, field name in UTF-8)
    id of a value    = hash(field key, value bytes as they stand in the file); for the `True` and `False` of a table, as
                       Python writes them, the bytes are `true` and `false`
    id of a derived value (a cross of fields, a number computed from others)
                     = hash(key of its name, its parts as 8 little-endian bytes each: ids or integers)

mix64 is a bijection, so values of at most 8 bytes and equal length never collide within a field. Longer values collide
as under a random 64-bit function: any two of 34 million ids (Criteo) do with probability 3e-5. The text parser has the
same function in C++ (native/text/hash.h).
"""

from __future__ import annotations

import hashlib
import time
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from esd.data.memory import recall, remember
from esd.data.remote import DataFile, RemoteFile
from esd.services.domain.ids import GOLDEN, mix64

# Part of every data set's fingerprint. Raise it when any reader makes other ids, labels or features of the same input.
READER_VERSION = 2

_CONTENT = "content"  # the kind of what is remembered here
# A file that was changed within one step of its file system's clock may be changed once more and look the same.
_CLOCK_STEP_NS = 2_000_000_000
_WORTH_BYTES = 1 << 20  # of a file whose hash is worth a file of its own

_MASK = 2**64 - 1


def file_fingerprint(path: DataFile) -> str:
    """Names a file's whole content: its size and a hash of it. The first call reads the file, at about 1 GB/s.

    Neither its name nor its time count, so a file that was copied or moved is the same. The hash is remembered as long
    as the file stays as it is, in other processes, too, unless the file is so small that it is read as fast.
    """
    if isinstance(path, RemoteFile):
        state, changed_ns, size = path.state()
    else:
        stat = path.stat()
        # Whoever changes a file's content changes ctime, which no program can set back.
        state = f"{stat.st_dev} {stat.st_ino} {stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns}"
        changed_ns, size = stat.st_ctime_ns, stat.st_size
    if size < _WORTH_BYTES:
        return f"{size} bytes, {_content(path)}"
    if isinstance(path, Path):
        state = f"{path.resolve()} {state}"
    known = recall(_CONTENT, state)
    if not isinstance(known, str):
        known = _content(path)
        if time.time_ns() - changed_ns > _CLOCK_STEP_NS:
            remember(_CONTENT, state, known)
    return f"{size} bytes, {known}"


def _content(path: DataFile) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=8)).hexdigest()


def hash_bytes(key: int, value: bytes) -> int:
    """Returns the 64-bit hash of one value."""
    words = np.frombuffer(value + bytes(-len(value) % 8), "<u8")
    return int(_fold(_start(key, len(value)), [word.reshape(1) for word in words])[0])


@lru_cache(maxsize=4096)
def field_key(name: str) -> int:
    """Returns the key with which a field's values are hashed."""
    return hash_bytes(0, name.encode())


def derived_ids(name: str, *parts: NDArray[np.integer]) -> NDArray[np.uint64]:
    """Makes the ids of a derived field, uint64 [k], from its parts: ids or integers that are not negative, [k] each."""
    return _fold(_start(field_key(name), 8 * len(parts)), [part.astype(np.uint64) for part in parts])


def _start(key: int, length: int) -> NDArray[np.uint64]:
    return mix64(np.array([key ^ (length * GOLDEN & _MASK)], np.uint64))


def _fold(start: NDArray[np.uint64], words: list[NDArray[np.uint64]]) -> NDArray[np.uint64]:
    hashed = start
    for word in words:
        hashed = mix64(hashed ^ word)
    return hashed
