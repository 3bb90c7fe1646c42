"""Conversion of tables in format 4, in which every row was a key of its own.

    e:{<table>.<pp>}:<id>    one row: version (int64), W float32, checksum (uint32); the id as 8 raw bytes
        u<cut>:{<table>.<pp>}    hash of pre-images: id -> value of the row at that cut, empty if the row did not exist

Each script moves some rows in one step, so a row is always in one format or the other, and a conversion that was
interrupted continues where it stopped. A server converts the partitions of its shard when it has claimed it.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator, Sequence

import numpy as np

from esd.native import rows as native
from esd.ps_server.core.shard import Shard
from esd.ps_server.stores.redis import layout, records, row_scripts
from esd.ps_server.stores.redis.claim import RENEWAL_SECONDS, Claim
from esd.ps_server.stores.redis.connection import Command, RedisConnection, ask, translated_errors
from esd.services.domain.tables import TableSpec

_log = logging.getLogger(__name__)

EARLIER_FORMAT = 4

_SCAN_KEYS = 1000  # keys that Redis examines per step
_ROWS_AT_A_TIME = 20_000  # dozens for each hash, so that a script moves more than one
_ROW = re.compile(rb"e:\{(.+)\.([0-9a-f]{2})\}:(.{8})", re.DOTALL)
_PRE_IMAGES = re.compile(rb"u(\d+):\{(.+)\.([0-9a-f]{2})\}")


def convert(tables: Sequence[TableSpec], shard: Shard, redis: RedisConnection, claim: Claim) -> None:
    """Converts everything of this shard that is in the earlier format, and renews the claim meanwhile.

    Raises:
        StoreLost: another server has taken the shard over.
    """
    conversions = {spec.name.encode(): _Conversion(spec, redis, claim) for spec in tables}
    partitions, rows = set(shard.partitions), 0
    renewed = time.monotonic()
    for keys in _keys(redis):
        for key in keys:
            if (row := _ROW.fullmatch(key)) and row[1] in conversions and int(row[2], 16) in partitions:
                if not rows:
                    _log.warning("converting the rows in Redis at %s to format 5, once", redis.address)
                rows += 1
                conversions[row[1]].add_row(key)
            elif (cut := _PRE_IMAGES.fullmatch(key)) and cut[2] in conversions and int(cut[3], 16) in partitions:
                conversions[cut[2]].move_pre_images(key, int(cut[1]))
        if time.monotonic() - renewed > RENEWAL_SECONDS:
            claim.renew()
            renewed = time.monotonic()
    for conversion in conversions.values():
        conversion.move_rows()
    if rows:
        _log.warning("converted %d rows in Redis at %s", rows, redis.address)


def _keys(redis: RedisConnection) -> Iterator[list[bytes]]:
    """Yields the keys that may be in the earlier format; some may appear twice."""
    for server in redis.servers():
        cursor = b""
        while cursor != b"0":
            scan: Command = (b"SCAN", cursor or b"0", b"MATCH", b"[eu]*:{*", b"COUNT", _SCAN_KEYS)
            with translated_errors(redis.address):
                cursor, keys = ask(server, scan)
            yield keys


class _Conversion:
    """The conversion of one table."""

    def __init__(self, spec: TableSpec, redis: RedisConnection, claim: Claim) -> None:
        self._name = spec.name
        self._short = records.short_record_bytes(spec.row_width)
        self._size = layout.rows_per_command(spec.row_bytes)
        self._hashes = layout.quarter_keys("e", spec.name)
        self._redis = redis
        self._claim = claim
        self._found: list[bytes] = []

    def add_row(self, key: bytes) -> None:
        """Moves a row into its hash, together with later ones."""
        self._found.append(key)
        if len(self._found) >= _ROWS_AT_A_TIME:
            self.move_rows()

    def move_rows(self) -> None:
        """Moves the rows that were added."""
        keys, self._found = self._found, []
        ids = layout.join_rows([key[-8:] for key in keys], 8).view("<u8").ravel()
        places, names = native.addresses(ids)
        groups = layout.by_field(places, names, self._size)
        hashes, commands = [], []
        for part in groups.parts:
            mine = groups.order[part]
            key = self._hashes[places[mine[0]]]
            moved = [keys[i] for i in mine.tolist()]
            hashes.append(key)
            commands.append(
                self._claim.script(
                    row_scripts.CONVERT_ROWS,
                    [key, *moved],
                    self._short,
                    len(mine).to_bytes(2, "little"),
                    names[mine].tobytes(),
                )
            )
        self._redis.execute(hashes, commands)

    def move_pre_images(self, key: bytes, cut: int) -> None:
        """Moves the pre-images of one partition to the hashes of its quarters."""
        hashes = layout.quarter_keys(f"p{cut}", self._name)
        cursor = b""
        while cursor != b"0":
            scan: Command = (b"HSCAN", key, cursor or b"0", b"COUNT", self._size)
            ((cursor, pairs),) = self._redis.execute([key], [scan])
            ids = layout.join_rows(pairs[::2], 8).view(np.uint64).ravel()
            places, names = native.addresses(ids)
            groups = layout.by_place(places, self._size)
            commands = []
            for part in groups.parts:
                mine = groups.order[part]
                fields = layout.split_rows(ids[mine].view(np.uint8).reshape(-1, 8))
                target = hashes[places[mine[0]]]
                commands.append(
                    self._claim.script(row_scripts.CONVERT_PRE_IMAGES, [target, key], names[mine].tobytes(), *fields)
                )
            self._redis.execute([key] * len(commands), commands)
