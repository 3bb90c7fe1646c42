"""One table's rows in Redis."""

# ruff: noqa: D102 - the methods are documented in ps_server/core/store.py
from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import cast

import numpy as np
from numpy.typing import NDArray

from esd_native.rows import RowTable
from ps_server.core.shard import Shard
from ps_server.stores.overlay import first_of_each
from ps_server.stores.redis import layout, scripts
from ps_server.stores.redis.errors import translated
from ps_server.stores.redis.grouping import Groups, as_they_come, by_partition, rows_per_command
from ps_server.stores.redis.partials import RedisPartials
from ps_server.stores.redis.records import Records
from ps_server.stores.redis.routes import Command, Reply, Route
from ps_server.stores.redis.sample_log import RedisLog
from ps_server.stores.redis.undo import Undo
from services.domain.ids import partition_of, shard_of
from services.domain.rows import RowBlock
from services.domain.tables import TableSpec

_SCAN_KEYS = 1000  # that Redis looks at per step


class RedisTable:
    """A TableStore over Redis. Every read and write is one pipeline, of a script or MGET per few hundred rows."""

    def __init__(self, spec: TableSpec, shard: Shard, route: Route) -> None:
        self._width = spec.row_width
        self._route = route
        self._row_bytes = spec.row_bytes
        self._shard = shard
        self._keys = layout.RowKeys(spec.name)
        counters = layout.partition_keys("n", spec.name)
        self._counters = [counters[partition] for partition in shard.partitions]
        self._dense = f"d:{spec.name}".encode()
        self._parts = f"c:{spec.name}".encode()
        self._records = Records(spec.name, shard, route)
        self._undo = Undo(spec, shard, route, self._keys)
        self._rows_per_command = rows_per_command(spec.row_bytes)
        self.log = RedisLog(shard.index, spec.name, route)
        self._partials = RedisPartials(spec, shard, route)

    @cached_property
    def partials(self) -> RedisPartials:
        """The pending gradients, read when they are first asked for."""
        self._partials.load(self.versions)
        return self._partials

    def versions(self, ids: NDArray[np.uint64]) -> NDArray[np.int64]:
        groups, keys = self._grouped(ids)
        replies = self._execute(
            groups, keys, [(b"EVAL", scripts.READ_VERSIONS, _rows(part), *keys[part]) for part in groups.parts]
        )
        return groups.restore(np.frombuffer(b"".join(replies), np.int64))

    def read(self, ids: NDArray[np.uint64]) -> RowBlock:
        groups, keys = self._grouped(ids)
        replies = self._execute(groups, keys, [(b"MGET", *keys[part]) for part in groups.parts])
        values = [value for reply in replies for value in reply]
        versions, rows = layout.decode_rows(groups.arrange(ids), values, self._width)
        return RowBlock(ids, groups.restore(versions), groups.restore(rows))

    def write_newer(self, block: RowBlock) -> NDArray[np.bool_]:
        groups, keys = self._grouped(block.ids)
        columns = (groups.arrange(block.ids), groups.arrange(block.versions), groups.arrange(block.rows))
        values, undo = layout.encode_rows(*columns), self._undo.prefix
        commands: list[Command] = [
            (b"EVAL", scripts.WRITE_NEWER, _rows(part), *keys[part], undo, *values[part]) for part in groups.parts
        ]
        replies = self._execute(groups, keys, commands)
        return groups.restore(np.frombuffer(b"".join(replies), np.uint8) != ord("0"))

    def take_out_older(self, ids: NDArray[np.uint64], below: int) -> int:
        groups, keys = self._grouped(ids)
        take_out, undo = scripts.TAKE_OUT_OLDER, self._undo.prefix
        commands: list[Command] = [(b"EVAL", take_out, _rows(part), *keys[part], undo, below) for part in groups.parts]
        return sum(self._execute(groups, keys, commands))

    def scan(self) -> Iterator[RowBlock]:
        seen = RowTable(0)  # SCAN names a key twice when Redis rehashes meanwhile
        for ids in self._stored_ids():
            new = seen.write_newer(ids, np.ones(len(ids), np.int64), np.empty((len(ids), 0), np.float32))
            yield from self.read(ids[new]).pieces(self._rows_per_command)

    def __len__(self) -> int:
        return self.totals()[0]

    def totals(self) -> tuple[int, int]:
        replies = self._route.execute(
            self._counters, [(b"HMGET", counter, b"rows", b"versions") for counter in self._counters]
        )
        rows, versions = zip(*replies, strict=True)
        return sum(int(each or 0) for each in rows), sum(int(each or 0) for each in versions)

    def put_dense(self, data: bytes) -> None:
        self._route.execute([self._dense], [(b"SET", self._dense, data)])

    def get_dense(self) -> bytes | None:
        data: bytes | None
        (data,) = self._route.execute([self._dense], [(b"GET", self._dense)])
        return data

    def load_history(self) -> bytes | None:
        return self._records.load()

    def save_history(self, data: bytes) -> None:
        self._records.save(data)

    def reopen(self, cuts: Sequence[int]) -> bool:  # noqa: ARG002
        return False  # all rows are there

    def save(self, cut: int, earlier: int) -> tuple[int, int]:  # noqa: ARG002
        changed = self._undo.count(earlier) if earlier else len(self)
        return changed, changed * self._row_bytes

    def rows_at(self, cut: int, later: Sequence[int]) -> Iterator[RowBlock]:
        kept = (self._undo.blocks(each) for each in (cut, *later))
        return first_of_each(chain(chain.from_iterable(kept), self.scan()))

    def keep_undo(self, cut: int | None) -> None:
        self._undo.keep(cut)

    def undo(self, cut: int) -> int:
        return self._undo.put_back(cut)

    def forget(self, cut: int) -> None:
        self._undo.forget(cut)

    def clear(self) -> None:
        for ids in self._stored_ids():
            self._unlink(self._keys.encode(ids, partition_of(ids)))
        self._unlink(self._counters)
        self.partials.clear()

    def put_part(self, checkpoint: int, name: str, data: bytes) -> None:
        self._route.execute([self._parts], [(b"HSET", self._parts, _part(checkpoint, name), data)])

    def get_part(self, checkpoint: int, name: str) -> bytes | None:
        data: bytes | None
        (data,) = self._route.execute([self._parts], [(b"HGET", self._parts, _part(checkpoint, name))])
        return data

    def parts(self) -> set[int]:
        return {int(name.partition(b".")[0]) for name in self._part_names()}

    def drop_parts(self, checkpoint: int) -> None:
        names = [name for name in self._part_names() if name.startswith(_part(checkpoint, ""))]
        if names:
            self._route.execute([self._parts], [(b"HDEL", self._parts, *names)])

    def _part_names(self) -> list[bytes]:
        names: list[bytes]
        (names,) = self._route.execute([self._parts], [(b"HKEYS", self._parts)])
        return names

    def _stored_ids(self) -> Iterator[NDArray[np.uint64]]:
        """The ids of this shard's rows, some perhaps twice."""
        for server in self._route.servers():
            cursor = None
            while cursor != 0:
                with translated(self._route.address):
                    cursor, keys = server.scan(cursor or 0, match=self._keys.pattern, count=_SCAN_KEYS)
                ids = self._keys.decode(cast("list[bytes]", keys))
                yield ids[shard_of(ids, self._shard.count) == self._shard.index]

    def _unlink(self, keys: Sequence[bytes]) -> None:
        self._route.execute(keys, [(b"UNLINK", key) for key in keys])

    def _grouped(self, ids: NDArray[np.uint64]) -> tuple[Groups, list[bytes]]:
        """How rows are shared out, with their keys in that order."""
        partitions = partition_of(ids)
        if self._route.spans_partitions:
            groups = as_they_come(len(ids), self._rows_per_command)
        else:
            groups = by_partition(partitions, self._rows_per_command)
        return groups, self._keys.encode(groups.arrange(ids), groups.arrange(partitions))

    def _execute(self, groups: Groups, keys: Sequence[bytes], commands: Sequence[Command]) -> list[Reply]:
        return self._route.execute([keys[part.start] for part in groups.parts], commands)


def _part(checkpoint: int, name: str) -> bytes:
    return f"{checkpoint}.{name}".encode()


def _rows(part: slice) -> int:
    return int(part.stop - part.start)
