"""Row ids: 64-bit, open-ended, spread over partitions, which are divided among parameter-server shards.

In a job with several tables the top 8 bits of an id are the number of its table, and the other 56 bits a hash of the
value. So ascending ids are grouped by table, and the size of a row follows from its id on every layer. In a job with
one table an id is any number.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Number = TypeVar("Number", bound=np.number)

GOLDEN = 0x9E3779B97F4A7C15  # 2^64 divided by the golden ratio: splitmix64's increment
PARTITIONS = 64  # fixed, so that stored rows keep their keys under any number of shards
_VALUE_BITS = np.uint64(56)  # of an id, below the number of its table


def mix64(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Returns splitmix64's finaliser, element by element: a bijection of uint64 that spreads nearby values."""
    x = values.astype(np.uint64, copy=True)
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x


def sequence(start: int | np.uint64 | NDArray[np.uint64], first: int | np.uint64, count: int) -> NDArray[np.uint64]:
    """Returns the numbers `first` to `first + count - 1` of splitmix64's sequence from a start, uint64 [count].

    Number i is mix64(start + i GOLDEN): the sequence has no state, and any number can be computed alone.
    """
    places = np.arange(count, dtype=np.uint64) + np.uint64(first)
    return mix64(np.uint64(start) + places * np.uint64(GOLDEN))


def distinct_values(values: NDArray[Number]) -> NDArray[Number]:
    """Returns the distinct values of an array of any shape, ascending, [d].

    It sorts: the hash table of np.unique takes a hundred times as long for millions of ids.
    """
    ordered = np.sort(values, axis=None)
    found: NDArray[Number] = ordered[np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]]
    return found


def partition_of(ids: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Returns the partition of each id: mix64(id) mod PARTITIONS, int64 [r]."""
    return (mix64(ids) % np.uint64(PARTITIONS)).astype(np.int64)


def shard_of(ids: NDArray[np.uint64], shards: int) -> NDArray[np.int64]:
    """Returns the parameter-server shard of each id: its partition mod shards, int64 [r]."""
    return partition_of(ids) % shards


def in_table(ids: NDArray[np.uint64], number: int | NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Returns ids of the table with this number, 0..255, from the lower 56 bits of any ids; of the same shape.

    `number` may also be an array that broadcasts to the last axes of the ids.

    Example:
        >>> ids = esd.in_table(np.array([7, 8], np.uint64), 2)
        >>> [hex(each) for each in ids.tolist()]
        ['0x200000000000007', '0x200000000000008']
    """
    top = np.uint64(number) << _VALUE_BITS
    return (ids & ((np.uint64(1) << _VALUE_BITS) - np.uint64(1))) | top


def table_of(ids: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Returns the number of each id's table in a job with several, int64 of the same shape."""
    return (ids >> _VALUE_BITS).astype(np.int64)


def parts_of_tables(ids: NDArray[np.uint64], tables: int) -> list[NDArray[np.int64]]:
    """Returns, by number of the table, the positions of its ids in a list of ids; positions ascend."""
    if tables == 1:
        return [np.arange(len(ids))]
    numbers = table_of(ids)
    order = np.argsort(numbers, kind="stable")
    ends = np.searchsorted(numbers[order], np.arange(tables - 1), side="right")
    return list(np.split(order, ends))
