"""One table's rows in Redis."""

# ruff: noqa: D102 - the methods are documented in ps_server/core/store.py
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from esd_native.rows import RowTable
from ps_server.core.blocks import RowBlock
from ps_server.core.shard import Shard
from ps_server.stores.redis import layout, scripts
from ps_server.stores.redis.errors import translated
from ps_server.stores.redis.grouping import Groups, as_they_come, by_bucket, rows_per_command
from ps_server.stores.redis.partials import RedisPartials
from ps_server.stores.redis.routes import Command, Reply, Route
from ps_server.stores.redis.sample_log import RedisLog
from ps_server.stores.redis.undo import Undo
from services.domain.tables import TableSpec

_SCAN_KEYS = 1000  # that Redis looks at per step


class RedisTable:
    """A TableStore over Redis. Every read and write is one pipeline, of a script or MGET per few hundred rows."""

    def __init__(self, spec: TableSpec, shard: Shard, route: Route) -> None:
        """Reads the pending gradients.

        Raises:
            Unavailable: Redis is out of reach.
        """
        self._width = spec.row_width
        self._route = route
        self._keys = layout.RowKeys(shard.index, spec.name)
        self._counters = layout.bucket_keys("n", shard.index, spec.name)
        self._dense = f"d:{spec.name}".encode()
        self._history = f"h{shard.index}:{spec.name}".encode()
        self._parts = f"c{shard.index}:{spec.name}:"
        self._undo = Undo(spec, shard, route, self._keys, self._counters)
        self._rows_per_command = rows_per_command(spec.row_bytes)
        self.log = RedisLog(shard.index, spec.name, route)
        self.partials = RedisPartials(spec, shard, route)
        self.partials.load(self.versions)

    def versions(self, ids: NDArray[np.uint64]) -> NDArray[np.int64]:
        groups, keys, _ = self._grouped(ids)
        replies = self._execute(
            groups, keys, [(b"EVAL", scripts.READ_VERSIONS, _rows(part), *keys[part]) for part in groups.parts]
        )
        return groups.restore(np.frombuffer(b"".join(replies), np.int64))

    def read(self, ids: NDArray[np.uint64]) -> RowBlock:
        groups, keys, _ = self._grouped(ids)
        replies = self._execute(groups, keys, [(b"MGET", *keys[part]) for part in groups.parts])
        values = [value for reply in replies for value in reply]
        versions, rows = layout.decode_rows(values, self._width)
        return RowBlock(ids, groups.restore(versions), groups.restore(rows))

    def write_newer(self, block: RowBlock) -> NDArray[np.bool_]:
        groups, keys, buckets = self._grouped(block.ids)
        values = layout.encode_rows(groups.arrange(block.versions), groups.arrange(block.rows))
        commands: list[Command] = []
        for part in groups.parts:
            counter = self._counters[buckets[part.start]]
            kept, keep = self._undo.place(buckets[part.start])
            commands.append(
                (b"EVAL", scripts.WRITE_NEWER, 2 + _rows(part), counter, kept, *keys[part], keep, *values[part])
            )
        replies = self._execute(groups, keys, commands)
        return groups.restore(np.frombuffer(b"".join(replies), np.uint8) != ord("0"))

    def scan(self) -> Iterator[RowBlock]:
        seen = RowTable(0)  # SCAN names a key twice when Redis rehashes meanwhile
        for server in self._route.servers():
            cursor = None
            while cursor != 0:
                with translated(self._route.address):
                    cursor, keys = server.scan(cursor or 0, match=self._keys.pattern, count=_SCAN_KEYS)
                ids = self._keys.decode(cast("list[bytes]", keys))
                new = seen.write_newer(ids, np.ones(len(ids), np.int64), np.empty((len(ids), 0), np.float32))
                yield from self.read(ids[new]).parts(self._rows_per_command)

    def __len__(self) -> int:
        counts = self._route.execute(self._counters, [(b"GET", counter) for counter in self._counters])
        return sum(int(count or 0) for count in counts)

    def put_dense(self, data: bytes) -> None:
        self._route.execute([self._dense], [(b"SET", self._dense, data)])

    def get_dense(self) -> bytes | None:
        data: bytes | None
        (data,) = self._route.execute([self._dense], [(b"GET", self._dense)])
        return data

    def load_history(self) -> bytes | None:
        data: bytes | None
        (data,) = self._route.execute([self._history], [(b"GET", self._history)])
        return data

    def save_history(self, data: bytes) -> None:
        self._route.execute([self._history], [(b"SET", self._history, data)])

    def reopen(self, cut: int) -> bool:  # noqa: ARG002
        return False  # all rows are there

    def save(self, cut: int) -> tuple[int, int]:  # noqa: ARG002
        return 0, 0

    def keep_undo(self, cut: int | None) -> None:
        self._undo.keep(cut)

    def undo(self, cut: int) -> int:
        return self._undo.put_back(cut)

    def forget_undo(self, cut: int) -> None:
        self._undo.forget(cut)

    def clear(self) -> None:
        for server in self._route.servers():
            cursor = None
            while cursor != 0:
                with translated(self._route.address):
                    cursor, keys = server.scan(cursor or 0, match=self._keys.pattern, count=_SCAN_KEYS)
                self._unlink(cast("list[bytes]", keys))
        self._unlink(self._counters)
        self.partials.clear()

    def put_part(self, checkpoint: int, name: str, data: bytes) -> None:
        key = self._part_key(checkpoint)
        self._route.execute([key], [(b"HSET", key, name.encode(), data)])

    def get_part(self, checkpoint: int, name: str) -> bytes | None:
        key = self._part_key(checkpoint)
        data: bytes | None
        (data,) = self._route.execute([key], [(b"HGET", key, name.encode())])
        return data

    def drop_parts(self, checkpoint: int) -> None:
        self._unlink([self._part_key(checkpoint)])

    def _part_key(self, checkpoint: int) -> bytes:
        return f"{self._parts}{checkpoint}".encode()

    def _unlink(self, keys: Sequence[bytes]) -> None:
        self._route.execute(keys, [(b"UNLINK", key) for key in keys])

    def _grouped(self, ids: NDArray[np.uint64]) -> tuple[Groups, list[bytes], NDArray[np.intp]]:
        """How rows are shared out, with their keys and buckets in that order."""
        buckets = layout.bucket_of(ids)
        if self._route.spans_buckets:
            groups = as_they_come(len(ids), self._rows_per_command)
        else:
            groups = by_bucket(buckets, self._rows_per_command)
        buckets = groups.arrange(buckets)
        return groups, self._keys.encode(groups.arrange(ids), buckets), buckets

    def _execute(self, groups: Groups, keys: Sequence[bytes], commands: Sequence[Command]) -> list[Reply]:
        return self._route.execute([keys[part.start] for part in groups.parts], commands)


def _rows(part: slice) -> int:
    return int(part.stop - part.start)
