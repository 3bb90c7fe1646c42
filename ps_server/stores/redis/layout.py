"""How rows are laid out in Redis.

    esd:layout               JSON: format, shards, buckets; written once, never changed
    esd:mark:<number>        something random: see marks
    esd:tables               hash: table name -> JSON of its specification
    e<shard>:{<table>.<bb>}:<id>   one row: version (int64) and W float32
    n<shard>:{<table>.<bb>}        how many rows the bucket has
    g<shard>:{<table>.<bb>}        hash of pending gradients: id and worker -> split and D float32
    u<cut>.<shard>:{<table>.<bb>}  hash of pre-images: id -> value of the row at that cut, empty where there was none
    h<shard>:<table>         JSON of the table's history: epoch, cuts, committed checkpoint with its manifest
    c<shard>:<table>:<cut>   hash of a checkpoint's parts: name -> data
    d:<table>                dense parameters
    s<shard>:<table>         stream of the sample log: see sample_log

Everything in a bucket <bb> (two hex digits, the top bits of mix64(id)) shares a hash slot, so that a Redis Cluster
takes one command for many rows; buckets spread over the nodes. Ids are 8 raw bytes: keys of one table have one
length, and are cut from one buffer. All numbers are little-endian.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from services.domain.errors import Internal
from services.domain.ids import mix64

BUCKET_BITS = 5
BUCKETS = 1 << BUCKET_BITS  # four per node of an eight-node cluster; fixed for the life of the data
VERSION_BYTES = 8


def bucket_of(ids: NDArray[np.uint64]) -> NDArray[np.intp]:
    """The bucket of each id: its hash's top bits, since the ids of a shard share low ones."""
    return (mix64(ids) >> np.uint64(64 - BUCKET_BITS)).astype(np.intp)


def bucket_keys(kind: str, shard: int, table: str) -> list[bytes]:
    """One key per bucket."""
    return [f"{kind}{shard}:{{{table}.{bucket:02x}}}".encode() for bucket in range(BUCKETS)]


class RowKeys:
    """The keys of a table's rows."""

    def __init__(self, shard: int, table: str) -> None:
        prefixes = [key + b":" for key in bucket_keys("e", shard, table)]
        self._prefixes = np.frombuffer(b"".join(prefixes), np.uint8).reshape(BUCKETS, -1)
        self._length = self._prefixes.shape[1] + 8
        self.pattern = f"e{shard}:{{{table}.*".encode()  # for SCAN; a table's name holds no special character

    def encode(self, ids: NDArray[np.uint64], buckets: NDArray[np.intp]) -> list[bytes]:
        """One key per id."""
        keys = np.empty((len(ids), self._length), np.uint8)
        keys[:, :-8] = self._prefixes[buckets]
        keys[:, -8:] = _bytes_of(ids)
        return split_rows(keys)

    def decode(self, keys: Sequence[bytes]) -> NDArray[np.uint64]:
        """The ids of keys of this table."""
        return np.ascontiguousarray(join_rows(keys, self._length)[:, -8:]).view(np.uint64).ravel()


def encode_rows(versions: NDArray[np.int64], rows: NDArray[np.float32]) -> list[bytes]:
    """One value per row."""
    values = np.empty((len(rows), VERSION_BYTES + 4 * rows.shape[1]), np.uint8)
    values[:, :VERSION_BYTES] = _bytes_of(versions)
    values[:, VERSION_BYTES:] = rows.view(np.uint8)
    return split_rows(values)


def decode_rows(values: Sequence[bytes | None], width: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Versions and rows of values; an absent one is version 0 and zeros."""
    length = VERSION_BYTES + 4 * width
    absent = bytes(length)
    packed = join_rows([absent if value is None else value for value in values], length)
    versions = packed[:, :VERSION_BYTES].copy().view(np.int64).ravel()  # a copy of one row, too: it may be changed
    return versions, packed[:, VERSION_BYTES:].copy().view(np.float32)


def join_rows(values: Sequence[bytes], length: int) -> NDArray[np.uint8]:
    """Byte strings of equal length as uint8 [r, length]."""
    joined = b"".join(values)
    if len(joined) != length * len(values):
        raise Internal(f"{len(values)} values in Redis have {len(joined)} bytes instead of {length} each")
    return np.frombuffer(joined, np.uint8).reshape(len(values), length)


def split_rows(packed: NDArray[np.uint8]) -> list[bytes]:
    """The rows of a contiguous uint8 [r, length] as byte strings, without a Python step per row."""
    strings: list[bytes] = packed.view(f"V{packed.shape[1]}").ravel().tolist()
    return strings


def _bytes_of(column: NDArray[np.generic]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(column).view(np.uint8).reshape(len(column), column.dtype.itemsize)
