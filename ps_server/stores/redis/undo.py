"""The way back to a cut, in Redis: pre-images in hashes, written with the rows themselves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ps_server.core.shard import Shard
from ps_server.stores.redis import layout, scripts
from ps_server.stores.redis.grouping import as_they_come, by_bucket, rows_per_command
from ps_server.stores.redis.routes import Command, Route
from services.domain.tables import TableSpec


class Undo:
    """Pre-images of one table's rows, in one generation of hashes per cut."""

    def __init__(
        self, spec: TableSpec, shard: Shard, route: Route, keys: layout.RowKeys, counters: Sequence[bytes]
    ) -> None:
        self._table = spec.name
        self._shard = shard.index
        self._route = route
        self._keys = keys
        self._counters = counters
        self._rows_per_command = rows_per_command(spec.row_bytes)
        self._cut: int | None = None
        self._hashes: Sequence[bytes] = self._names(0)

    def keep(self, cut: int | None) -> None:
        """Names the generation that pre-images go to; None: they are not kept."""
        self._cut = cut
        self._hashes = self._names(cut or 0)

    def place(self, bucket: int) -> tuple[bytes, bytes]:
        """The hash for the pre-images of a command's rows, and whether to keep them, as the script wants it.

        A command may name rows of several buckets on a single server. There, one hash takes them all, since a
        row's pre-images must meet in one place for the first to win.
        """
        return self._hashes[0 if self._route.spans_buckets else bucket], b"0" if self._cut is None else b"1"

    def put_back(self, cut: int) -> int:
        """Puts every row of a generation back, then forgets the generation. May be repeated after a failure."""
        count = 0
        for key in self._names(cut):
            cursor = b""
            while cursor != b"0":
                scan: Command = (b"HSCAN", key, cursor or b"0", b"COUNT", self._rows_per_command)
                ((cursor, pairs),) = self._route.execute([key], [scan])
                self._put_back(pairs[::2], pairs[1::2])
                count += len(pairs) // 2
        self.forget(cut)
        return count

    def forget(self, cut: int) -> None:
        """Drops a generation."""
        names = self._names(cut)
        self._route.execute(names, [(b"UNLINK", key) for key in names])

    def _put_back(self, fields: list[bytes], values: list[bytes]) -> None:
        if not fields:
            return
        ids = np.frombuffer(b"".join(fields), np.uint64)
        buckets = layout.bucket_of(ids)
        size = self._rows_per_command
        groups = as_they_come(len(ids), size) if self._route.spans_buckets else by_bucket(buckets, size)
        order = range(len(ids)) if groups.order is None else groups.order.tolist()
        buckets = groups.arrange(buckets)
        keys = self._keys.encode(groups.arrange(ids), buckets)
        arranged = [values[at] for at in order]
        commands: list[Command] = [
            (b"EVAL", scripts.PUT_BACK, 1 + part.stop - part.start, self._counters[buckets[part.start]], *keys[part],
             *arranged[part])
            for part in groups.parts
        ]  # fmt: skip
        self._route.execute([keys[part.start] for part in groups.parts], commands)

    def _names(self, cut: int) -> list[bytes]:
        return layout.bucket_keys(f"u{cut}.", self._shard, self._table)
