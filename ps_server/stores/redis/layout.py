"""The layout of a table in Redis, and the grouping of its rows into commands.

    esd:layout               JSON: format, partitions; written once, never changed
        esd:mark:<number>        a random value: see trust.py
        esd:pulse:<shard>:<..>   a number for each mark that rises with every ping of the shard's server: see trust.py
    esd:tables               hash: table name -> JSON of its specification
        esd:servers              hash: the server of each shard, and the time at which its claim expires: see claim.py
    e:{<table>.<pp>}:<id>    one row: version (int64), W float32, checksum (uint32)
    n:{<table>.<pp>}         hash: rows of the partition, and the trainings of all of them together (`trainings`)
    g:{<table>.<pp>}         hash of pending gradients: id and worker -> split, D float32, checksum
        u<cut>:{<table>.<pp>}    hash of pre-images: id -> value of the row at that cut, empty if the row did not exist
    h:<table>                hash: shards, and for each of them the record of its history (JSON)
    c:<table>                hash of parts of checkpoints: <cut>.<name> -> data
    d:<table>                dense parameters, after a checksum
    s<shard>:<table>         stream of the sample log: see sample_log.py
        f:{<slot>}               on a cluster, hash: the servers that may write to the slot's other keys: see claim.py

All keys of a partition <pp> (two hex digits) share a hash slot, so that a Redis Cluster accepts one command for many
rows; the partitions spread over the nodes. Each partition belongs to one shard, and no key of a row names the shard:
any number of parameter servers finds every row in place. Ids are 8 raw bytes: so all keys of one table have the same
length, and are cut from one buffer. All numbers are little-endian.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from esd.native.rows import checksums
from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.ids import PARTITIONS

_VERSION_BYTES = 8
_CHECKSUM_BYTES = 4

# Redis does nothing else while a command runs. Scripts and replies of a quarter MiB are also the fastest: larger ones
# exceed the processor's cache, and many small ones cost an fsync each (measured with rows of 2 KiB).
_MAX_ROWS = 500
_MAX_BYTES = 1 << 18

S = TypeVar("S", bound=np.generic)


def partition_keys(kind: str, table: str) -> list[bytes]:
    """Returns the keys of one kind, one per partition."""
    return [f"{kind}:{{{table}.{partition:02x}}}".encode() for partition in range(PARTITIONS)]


class RowKeys:
    """The keys of a table's rows.

    Attributes:
        pattern: matches all of them, for SCAN.
    """

    def __init__(self, table: str) -> None:
        prefixes = [key + b":" for key in partition_keys("e", table)]
        self._prefixes = np.frombuffer(b"".join(prefixes), np.uint8).reshape(PARTITIONS, -1)
        self._length = self._prefixes.shape[1] + 8
        self.pattern = f"e:{{{table}.*".encode()  # a table's name holds no special character

    def encode(self, ids: NDArray[np.uint64], partitions: NDArray[np.int64]) -> list[bytes]:
        """Returns one key per id; `partitions` are the partitions of the ids, int64 [r]."""
        keys = np.empty((len(ids), self._length), np.uint8)
        keys[:, :-8] = self._prefixes[partitions]
        keys[:, -8:] = _bytes_of(ids)
        return split_rows(keys)

    def decode(self, keys: Sequence[bytes]) -> NDArray[np.uint64]:
        """Returns the ids of keys of this table, uint64 [r]."""
        return np.ascontiguousarray(join_rows(keys, self._length)[:, -8:]).view(np.uint64).ravel()


def encode_rows(ids: NDArray[np.uint64], versions: NDArray[np.int64], rows: NDArray[np.float32]) -> list[bytes]:
    """Returns one value per row: version, floats and checksum."""
    values = np.empty((len(rows), _VERSION_BYTES + 4 * rows.shape[1] + _CHECKSUM_BYTES), np.uint8)
    values[:, :_VERSION_BYTES] = _bytes_of(versions)
    values[:, _VERSION_BYTES:-_CHECKSUM_BYTES] = rows.view(np.uint8)
    values[:, -_CHECKSUM_BYTES:] = _bytes_of(checksums(ids, versions, rows))
    return split_rows(values)


def decode_rows(
    ids: NDArray[np.uint64], values: Sequence[bytes | None], width: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Returns versions, int64 [r], and rows, float32 [r, W]; an absent or empty value is version 0 and zeros.

    Raises:
        FailedPrecondition: a value has changed since it was written.
    """
    length = _VERSION_BYTES + 4 * width + _CHECKSUM_BYTES
    absent = bytes(length)
    packed = join_rows([value or absent for value in values], length)
    versions = packed[:, :_VERSION_BYTES].copy().view(np.int64).ravel()  # a copy even of one row: the caller may write
    rows = packed[:, _VERSION_BYTES:-_CHECKSUM_BYTES].copy().view(np.float32)
    stored = np.ascontiguousarray(packed[:, -_CHECKSUM_BYTES:]).view(np.uint32).ravel()
    damaged = (checksums(ids, versions, rows) != stored) & ((versions != 0) | (stored != 0))
    if damaged.any():
        raise FailedPrecondition(f"row {ids[np.argmax(damaged)]} in Redis is damaged: its checksum differs")
    return versions, rows


def join_rows(values: Sequence[bytes], length: int) -> NDArray[np.uint8]:
    """Joins strings of equal length to uint8 [r, length]. Raises FailedPrecondition if a string has another length."""
    joined = b"".join(values)
    if len(joined) != length * len(values):
        raise FailedPrecondition(
            f"{len(values)} values in Redis have {len(joined)} bytes instead of {length} each: some are damaged"
        )
    return np.frombuffer(joined, np.uint8).reshape(len(values), length)


def number(value: bytes | None) -> int:
    """Returns a number that Redis keeps as text; 0 if absent. Raises FailedPrecondition if it is not a number."""
    if value is not None and not value.isdigit():
        raise FailedPrecondition(f"{value[:40]!r} is stored in Redis in place of a number: it is damaged")
    return int(value or 0)


def split_rows(packed: NDArray[np.uint8]) -> list[bytes]:
    """Returns the rows of a contiguous uint8 [r, length] as byte strings, without a Python step per row."""
    strings: list[bytes] = packed.view(f"V{packed.shape[1]}").ravel().tolist()
    return strings


@dataclass(frozen=True, slots=True)
class Groups:
    """A grouping of r rows into commands: an order of the rows, and a part of this order for each command.

    Attributes:
        order: int [r]; None: the rows keep their order.
        parts: consecutive parts of the order.
    """

    order: NDArray[np.intp] | None
    parts: Sequence[slice]

    def arrange(self, column: NDArray[S]) -> NDArray[S]:
        """Puts a column of the rows into this order."""
        return column if self.order is None else column[self.order]

    def restore(self, column: NDArray[S]) -> NDArray[S]:
        """Puts a column in this order back into the order of the rows."""
        if self.order is None:
            return column
        restored = np.empty_like(column)
        restored[self.order] = column
        return restored


def rows_per_command(row_bytes: int) -> int:
    """Returns the most rows of `row_bytes` that one command should name."""
    return max(1, min(_MAX_ROWS, _MAX_BYTES // row_bytes))


def in_given_order(rows: int, size: int) -> Groups:
    """Returns groups of up to `size` rows, of any partitions."""
    return Groups(None, _slices(0, rows, size))


def by_partition(partitions: NDArray[np.int64], size: int) -> Groups:
    """Returns groups of up to `size` rows of one partition each, as a cluster requires."""
    order = np.argsort(partitions, kind="stable")
    edges = np.flatnonzero(np.diff(partitions[order], prepend=-1, append=-1)).tolist()
    parts = [part for start, end in pairwise(edges) for part in _slices(start, end, size)]
    return Groups(order, parts)


def _slices(start: int, end: int, size: int) -> list[slice]:
    return [slice(at, min(at + size, end)) for at in range(start, end, size)]


def _bytes_of(column: NDArray[np.generic]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(column).view(np.uint8).reshape(len(column), column.dtype.itemsize)
