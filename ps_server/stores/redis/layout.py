"""The layout of a table in Redis.

    esd:layout               JSON: format, partitions; see store.py
        esd:mark:<number>        a random value: see trust.py
        esd:pulse:<shard>:<..>   a number for each mark that rises with every ping of the shard's server: see trust.py
    esd:tables               hash: table name -> JSON of its specification
        esd:servers              hash: the server of each shard, and the time at which its claim expires: see claim.py
        esd:claims               on a single server: the number of claims so far: see watched.py
    e:{<table>.<pp>}:<q>     hash of rows, a quarter of a partition: see records.py
    n:{<table>.<pp>}         hash: `rows` of the partition, `trainings` of all of them together, and how many more rows
                             than fields there are (`shared`)
    g:{<table>.<pp>}         hash of pending gradients: id and worker -> split, D float32, checksum
        p<cut>:{<table>.<pp>}:<q>   hash of pre-images: field and last byte of a row -> its record at that cut, empty if
                             the row did not exist
    h:<table>                hash: shards, and for each of them the record of its history (JSON)
    c:<table>                hash of parts of checkpoints: <cut>.<name> -> data
    d:<table>                dense parameters, after a checksum
    s<shard>:<table>         stream of the sample log: see sample_log.py
        f:{<slot>}               on a cluster, hash: the servers that may write to the slot's other keys: see claim.py

All keys of a partition <pp> (two hex digits) share a hash slot, so that a Redis Cluster accepts one command for many
rows; the partitions spread over the nodes. Each partition belongs to one shard, and no key of a row names the shard:
any number of parameter servers finds every row in place. All numbers are little-endian.

Rows are fields of few large hashes because a key costs 50 bytes more than a field, and one command reads or writes all
rows of a hash. A partition has four, so that the largest value that moves between nodes of a cluster is a 256th of a
table; more of them would leave fewer rows to each command (benchmarks/redis_layouts.py compares layouts).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.ids import PARTITIONS

QUARTERS = 4

# Redis does nothing else while a command runs. Commands and replies of a quarter MiB are also the fastest for rows of 2
# KiB: larger ones exceed the processor's cache. Lua passes up to 8,000 values to a command, two for each row.
_MAX_ROWS = 2_000
_MAX_BYTES = 1 << 18

# A Redis that writes each change to its disk before it answers waits for the disk once per script of a pipeline, and
# this takes as long as the script of a few thousand small rows. So one script has all rows of a frame (of a MiB), which
# keeps Redis busy for 40 ms.
_MAX_SCRIPT_ROWS = 16_384
_MAX_SCRIPT_BYTES = 1 << 20

S = TypeVar("S", bound=np.generic)


def partition_keys(kind: str, table: str) -> list[bytes]:
    """Returns the keys of one kind, one per partition."""
    return [f"{kind}:{{{table}.{partition:02x}}}".encode() for partition in range(PARTITIONS)]


def quarter_keys(kind: str, table: str) -> list[bytes]:
    """Returns the keys of one kind, one per quarter: the keys of partition p are at 4p to 4p + 3."""
    return [b"%s:%d" % (key, quarter) for key in partition_keys(kind, table) for quarter in range(QUARTERS)]


def places_of(partitions: Sequence[int]) -> list[int]:
    """Returns the places of the quarters of partitions in a list of `quarter_keys`."""
    return [QUARTERS * partition + quarter for partition in partitions for quarter in range(QUARTERS)]


def quarters(places: Sequence[int]) -> list[Sequence[int]]:
    """Divides the places of `places_of` by partition."""
    return [places[at : at + QUARTERS] for at in range(0, len(places), QUARTERS)]


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
        order: int [r].
        parts: consecutive parts of the order.
    """

    order: NDArray[np.intp]
    parts: Sequence[slice]

    def arrange(self, column: NDArray[S]) -> NDArray[S]:
        """Puts a column of the rows into this order."""
        return column[self.order]

    def restore(self, column: NDArray[S]) -> NDArray[S]:
        """Puts a column in this order back into the order of the rows."""
        restored = np.empty_like(column)
        restored[self.order] = column
        return restored


def rows_per_command(row_bytes: int) -> int:
    """Returns the most rows of `row_bytes` that one command should name."""
    return max(1, min(_MAX_ROWS, _MAX_BYTES // row_bytes))


def rows_per_script(row_bytes: int) -> int:
    """Returns the most rows of `row_bytes` that one call of a script that reads or writes rows should name."""
    return max(1, min(_MAX_SCRIPT_ROWS, _MAX_SCRIPT_BYTES // row_bytes))


def by_place(places: NDArray[np.integer], size: int, span: int = 1) -> Groups:
    """Returns groups of up to `size` rows each, in ascending order of the places [r] where the rows are.

    Args:
        places: not negative.
        size: the most rows of a group.
        span: a group names places of one range only: from a multiple of `span` to the next one.
    """
    order = np.argsort(places, kind="stable")
    parts = [
        slice(at, min(at + size, run.stop))
        for run in runs(places[order] // span)
        for at in range(run.start, run.stop, size)
    ]
    return Groups(order, parts)


def runs(places: NDArray[np.integer]) -> list[slice]:
    """Returns the runs of equal numbers in an ascending column of numbers that are not negative."""
    edges = np.flatnonzero(np.diff(places.astype(np.int64), prepend=-1, append=-1)).tolist()
    return [slice(start, end) for start, end in pairwise(edges)]


def runs_of_script(places: NDArray[np.integer]) -> list[slice]:
    """Returns the runs as `runs` does, the long ones divided into runs that a script can pass to one command."""
    return [
        slice(at, min(at + _MAX_ROWS, run.stop)) for run in runs(places) for at in range(run.start, run.stop, _MAX_ROWS)
    ]


def by_field(places: NDArray[np.integer], names: NDArray[np.uint8], size: int, span: int = 1) -> Groups:
    """Returns groups as `by_place` does, in which no two rows share a field of a hash.

    Of rows that share a field, all but one have groups of their own at the end.

    Args:
        places: [r], below 2^16.
        names: uint8 [r, 7], the names of the rows, of which the first 6 bytes are the field.
        size: as above.
        span: as above.
    """
    fields = np.zeros((len(names), 8), np.uint8)
    fields[:, :6] = names[:, :6]
    keys = fields.view("<u8").ravel() | places.astype(np.uint64) << np.uint64(48)
    order = np.argsort(keys)
    again = np.append(False, np.diff(keys[order]) == 0)[: len(keys)]
    first, others = order[~again], order[again]
    groups = by_place(places[first], size, span)
    return Groups(
        np.concatenate([first[groups.order], others]),
        [*groups.parts, *(slice(at, at + 1) for at in range(len(first), len(keys)))],
    )
