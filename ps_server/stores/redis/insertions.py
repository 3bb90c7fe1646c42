"""Rows whose fields are surely free are written by plain commands, for which Redis takes half as long as for a script.

No other server writes to the shard while its claim stands, and a filter of fields (native/rows/field_filter.h) has all
that this server has written, and all that were there before (survey.py), once these are known. So a field that is not
in the filter is free, and no pre-image of its row exists. The first push of a row takes it; later pushes of rows in the
same field wait until the first one is stored, and use scripts, which compare versions.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from esd.native import rows as native
from esd.ps_server.stores.redis.connection import Command, Reply
from esd.ps_server.stores.redis.records import FIELD_BYTES
from esd.ps_server.stores.redis.watched import WatchedTransactions, pack
from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.ids import mix64
from esd.services.domain.versions import at_birth

_FIELD_BITS = np.uint64(2**56 - 1)  # of an address: hash and field, without the last byte
# A new hash of short values would be a list; a long value makes it a table, as in row_scripts.py.
_SHORT = 128
_LONG_VALUE = b" " * 1024


@dataclass(frozen=True, slots=True)
class NewRows:
    """Rows for free fields, hash by hash.

    Attributes:
        hashes: the keys of their hashes.
        counts: uint16 [hashes], the number of rows in each.
        names: uint8 [r, 7], their names.
        versions: int64 [r].
        records: uint8, their records, one after the other.
        starts: int64 [r + 1], where each record begins and the last one ends.
        image_prefix: prefix of the keys of the hashes of pre-images; empty: none are kept.
    """

    hashes: list[bytes]
    counts: NDArray[np.uint16]
    names: NDArray[np.uint8]
    versions: NDArray[np.int64]
    records: NDArray[np.uint8]
    starts: NDArray[np.int64]
    image_prefix: bytes


@dataclass(eq=False, slots=True)
class _Running:
    """A push of rows in free fields that is on its way.

    Attributes:
        fields: uint64, addresses without their last byte, ascending.
        done: set when it has ended, stored or not.
    """

    fields: NDArray[np.uint64]
    done: threading.Event = field(default_factory=threading.Event)

    def writes_to(self, fields: NDArray[np.uint64]) -> bool:
        """Returns whether it writes to one of some fields, in any order."""
        if not len(self.fields):
            return False
        at = np.minimum(np.searchsorted(self.fields, fields), len(self.fields) - 1)
        return bool((self.fields[at] == fields).any())


class Insertions:
    """Knows the fields of a table that were ever written, and writes rows into free ones. Thread-safe.

    Args:
        transactions: of the single server that has the table; None on a cluster, where all rows are written by scripts.
        begun: this server has begun the table. Otherwise every field may be written until `know_all`.
    """

    def __init__(self, transactions: WatchedTransactions | None, *, begun: bool) -> None:
        self._written = native.FieldFilter()
        self._knows_all = begun
        self._transactions = transactions
        self._running: list[_Running] = []
        self._lock = threading.Lock()
        self._tables: set[bytes] = set()  # keys of hashes that are tables, not lists
        self._image_prefix = b""  # of those that have pre-images

    @property
    def possible(self) -> bool:
        """Whether rows can be written without a script."""
        return self._transactions is not None and self._transactions.permitted

    def learn(self, ids: NDArray[np.uint64]) -> None:
        """Takes the fields of these rows for written ones."""
        self._written.add(ids)

    def know_all(self) -> None:
        """Must be called when all fields of rows and pre-images that an earlier server has written were learned."""
        with self._lock:
            self._knows_all = True

    def may_be_written(self, ids: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Returns which rows Redis may have, bool [r]."""
        return self._written.has(ids) if self._knows_all else np.ones(len(ids), np.bool_)

    @contextmanager
    def taken(self, ids: NDArray[np.uint64]) -> Iterator[NDArray[np.bool_]]:
        """Takes the free fields of rows; yields which rows have a free one, bool [r].

        Waits for earlier pushes that are writing to one of the other fields.
        """
        fields = mix64(ids) & _FIELD_BITS
        with self._lock:
            free = self._written.add(ids) & self._knows_all
            earlier = tuple(self._running)
            running = _Running(np.sort(fields[free]))
            self._running.append(running)
        try:
            others = fields[~free]
            for each in earlier:
                if each.writes_to(others):
                    each.done.wait()
            self._settle()
            yield free
        finally:
            with self._lock:
                self._running.remove(running)
            running.done.set()

    def insert(self, rows: NewRows, then: Sequence[Command]) -> tuple[bool, list[Reply]] | None:
        """Writes rows into free fields, with their pre-images and counters, and runs other commands after them.

        Returns:
            Whether the rows were written, and the replies to the other commands; None if nothing is known.

        Raises:
            EsdError: Redis refuses a command, or a field was not free.
        """
        if self._transactions is None:
            return None
        if rows.image_prefix != self._image_prefix:
            self._tables, self._image_prefix = set(), rows.image_prefix
        images = [rows.image_prefix + key[2:] for key in rows.hashes] if rows.image_prefix else []
        short = [*images, *(rows.hashes if rows.starts[1] < _SHORT else [])]
        lists = [key for key in dict.fromkeys(short) if key not in self._tables]
        counts = _counts(rows)
        packed = [
            pack([(b"HSET", key, b"", _LONG_VALUE) for key in lists]),
            _packed_images(images, rows),
            _packed_rows(rows),
            pack([*((b"HDEL", key, b"") for key in lists), *counts]),
        ]
        count = 2 * len(lists) + len(images) + len(rows.hashes) + len(counts)
        outcome = self._transactions.run(packed, count, then)
        if outcome is None:
            self._settle()  # before the rows are written by scripts
            return None
        if outcome.replies is None:
            return False, outcome.then
        first = len(lists) + len(images)
        if outcome.replies[first : first + len(rows.hashes)] != rows.counts.tolist():
            raise FailedPrecondition(
                f"Redis has rows in {rows.hashes[0]!r} or another hash that this parameter server has not written: "
                "another program has. Restore its data, or begin anew with an empty database, and keep other programs "
                "out of it"
            )
        self._tables.update(lists)
        return True, outcome.then

    def settle(self) -> None:
        """Must be called before rows are removed or put back, which may also remove hashes. Raises as Claim.renew."""
        self._settle()
        self._tables.clear()

    def _settle(self) -> None:
        if self._transactions is not None:
            self._transactions.settle()


def _packed_rows(rows: NewRows) -> bytes:
    fields = np.ascontiguousarray(rows.names[:, :FIELD_BYTES])
    return native.hset_commands(rows.hashes, rows.counts, fields, rows.records, rows.starts)


def _packed_images(keys: list[bytes], rows: NewRows) -> bytes:
    """Returns the commands that note in these hashes that the rows did not exist."""
    if not keys:
        return b""
    return native.hset_commands(keys, rows.counts, rows.names, np.zeros(0, np.uint8), np.zeros_like(rows.starts))


def _counts(rows: NewRows) -> list[Command]:
    """Returns the commands that count the rows and their trainings by partition."""
    trainings = rows.versions - at_birth(rows.versions)
    starts = np.cumsum(rows.counts, dtype=np.int64) - rows.counts
    totals: dict[bytes, list[int]] = {}
    for key, count, trained in zip(
        rows.hashes, rows.counts.tolist(), np.add.reduceat(trainings, starts).tolist(), strict=True
    ):
        total = totals.setdefault(b"n:" + key[2:-2], [0, 0])
        total[0] += count
        total[1] += trained
    return [
        (b"HINCRBY", counter, name, number)
        for counter, total in totals.items()
        for name, number in zip((b"rows", b"trainings"), total, strict=True)
    ]
