"""The way back to a cut, in Redis: pre-images in hashes, written with the rows themselves."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ps_server.core.shard import Shard
from ps_server.stores.redis import layout, scripts
from ps_server.stores.redis.grouping import rows_per_command
from ps_server.stores.redis.routes import Command, Route
from services.domain.rows import RowBlock
from services.domain.tables import TableSpec


class Undo:
    """Pre-images of one table's rows, in one generation of hashes per cut."""

    def __init__(self, spec: TableSpec, shard: Shard, route: Route, keys: layout.RowKeys) -> None:
        self._table = spec.name
        self._width = spec.row_width
        self._shard = shard
        self._route = route
        self._keys = keys
        self._rows_per_command = rows_per_command(spec.row_bytes)
        self.prefix = b""

    def keep(self, cut: int | None) -> None:
        """Names the generation that pre-images go to, by the prefix of its hashes; None: they are not kept."""
        self.prefix = b"" if cut is None else b"u%d:" % cut

    def count(self, cut: int) -> int:
        """Rows of a generation."""
        names = self._names(cut)
        return sum(self._route.execute(names, [(b"HLEN", name) for name in names]))

    def blocks(self, cut: int) -> Iterator[RowBlock]:
        """A generation; version 0 where there was no row. Raises FailedPrecondition for a damaged pre-image."""
        for name in self._names(cut):
            for fields, values in self._pairs(name):
                ids = np.frombuffer(b"".join(fields), np.uint64)
                yield RowBlock(ids, *layout.decode_rows(ids, values, self._width))

    def put_back(self, cut: int) -> int:
        """Puts every row of a generation back, then forgets the generation. May be repeated after a failure."""
        count = 0
        for partition, name in zip(self._shard.partitions, self._names(cut), strict=True):
            for fields, values in self._pairs(name):
                ids = np.frombuffer(b"".join(fields), np.uint64)
                keys = self._keys.encode(ids, np.full(len(ids), partition))
                self._route.execute([name], [(b"EVAL", scripts.PUT_BACK, len(ids), *keys, *values)])
                count += len(ids)
        self.forget(cut)
        return count

    def forget(self, cut: int) -> None:
        """Drops a generation."""
        names = self._names(cut)
        self._route.execute(names, [(b"UNLINK", name) for name in names])

    def _pairs(self, name: bytes) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """Ids and values of one hash."""
        cursor = b""
        while cursor != b"0":
            scan: Command = (b"HSCAN", name, cursor or b"0", b"COUNT", self._rows_per_command)
            ((cursor, pairs),) = self._route.execute([name], [scan])
            if pairs:
                yield pairs[::2], pairs[1::2]

    def _names(self, cut: int) -> list[bytes]:
        names = layout.partition_keys(f"u{cut}", self._table)
        return [names[partition] for partition in self._shard.partitions]
