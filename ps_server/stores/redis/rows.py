"""One table's rows in Redis, and their pre-images at its cuts.

Pre-images are in hashes, one generation per cut. A script that changes a row writes its pre-image in the same step.
"""

# ruff: noqa: D102 - the methods are documented in ps_server/core/store.py
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Generic, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from esd.ps_server.core.shard import Shard
from esd.ps_server.stores.redis import layout, scripts
from esd.ps_server.stores.redis.claim import Claim
from esd.ps_server.stores.redis.connection import Command, RedisConnection, Reply, ask, translated_errors
from esd.ps_server.stores.row_streams import SeenIds, first_of_each
from esd.services.domain.ids import partition_of, shard_of
from esd.services.domain.rows import RowBlock
from esd.services.domain.tables import TableSpec

T = TypeVar("T")

_SCAN_KEYS = 1000  # keys that Redis examines per step


@dataclass(frozen=True, slots=True)
class _Step(Generic[T]):
    """Commands that belong together, and the conversion of their replies.

    Attributes:
        groups: the grouping of the rows into the commands.
        keys: keys of the rows, in the order of the groups.
        commands: one for each part of the groups.
        result: converts their replies to the result.
    """

    groups: layout.Groups
    keys: Sequence[bytes]
    commands: Sequence[Command]
    result: Callable[[Sequence[Reply]], T]


class RedisRows:
    """A RowStore over Redis. Every read and write is one pipeline, of a script or MGET per few hundred rows.

    Attributes:
        keys: the keys of the rows.
        rows_per_command: the most rows that one command should name.
        pre_image_prefix: prefix of the keys of the hashes that receive pre-images; empty: none are kept.
    """

    def __init__(self, spec: TableSpec, shard: Shard, redis: RedisConnection, claim: Claim) -> None:
        self.keys = layout.RowKeys(spec.name)
        self.rows_per_command = layout.rows_per_command(spec.row_bytes)
        self.pre_image_prefix = b""
        self._width = spec.row_width
        self._shard = shard
        self._redis = redis
        self._claim = claim
        counters = layout.partition_keys("n", spec.name)
        self._counters = [counters[partition] for partition in shard.partitions]

    def versions(self, ids: NDArray[np.uint64]) -> NDArray[np.int64]:
        groups, keys = self._grouped(ids)
        replies = self._execute(
            groups, keys, [(b"EVAL", scripts.READ_VERSIONS, _length(part), *keys[part]) for part in groups.parts]
        )
        return groups.restore(np.frombuffer(b"".join(replies), np.int64))

    def read(self, ids: NDArray[np.uint64]) -> RowBlock:
        (rows,) = self._run(self._reading(ids))
        return cast("RowBlock", rows)

    def write_newer(self, block: RowBlock) -> NDArray[np.bool_]:
        (stored,) = self._run(self._writing(block))
        return cast("NDArray[np.bool_]", stored)

    def write_newer_and_read(self, block: RowBlock, ids: NDArray[np.uint64]) -> tuple[NDArray[np.bool_], RowBlock]:
        stored, rows = self._run(self._writing(block), self._reading(ids))
        return stored, rows

    def forget_older(self, ids: NDArray[np.uint64], below: int) -> int:
        groups, keys = self._grouped(ids)
        prefix = self.pre_image_prefix
        commands = [self._claim.script(scripts.FORGET_OLDER, keys[part], prefix, below) for part in groups.parts]
        return sum(self._execute(groups, keys, commands))

    def scan(self) -> Iterator[RowBlock]:
        seen = SeenIds()  # SCAN may return a key twice if Redis rehashes meanwhile
        for ids in self._stored_ids():
            yield from self.read(ids[seen.add(ids)]).pieces(self.rows_per_command)

    def __len__(self) -> int:
        return self.totals()[0]

    def totals(self) -> tuple[int, int]:
        replies = self._redis.execute(
            self._counters, [(b"HMGET", counter, b"rows", b"trainings") for counter in self._counters]
        )
        rows, trainings = zip(*replies, strict=True)
        return sum(map(layout.number, rows)), sum(map(layout.number, trainings))

    def clear(self) -> None:
        # The counters go first: a counter above the number of rows would look like a loss of rows.
        self._redis.execute(self._counters, [self._claim.write(b"UNLINK", counter) for counter in self._counters])
        for ids in self._stored_ids():
            groups, keys = self._grouped(ids)
            self._execute(groups, keys, [self._claim.script(scripts.REMOVE, keys[part]) for part in groups.parts])

    def _stored_ids(self) -> Iterator[NDArray[np.uint64]]:
        """Yields the ids of this shard's rows; some may appear twice."""
        for server in self._redis.servers():
            cursor = b""
            while cursor != b"0":
                scan: Command = (b"SCAN", cursor or b"0", b"MATCH", self.keys.pattern, b"COUNT", _SCAN_KEYS)
                with translated_errors(self._redis.address):
                    cursor, keys = ask(server, scan)
                ids = self.keys.decode(keys)
                yield ids[shard_of(ids, self._shard.count) == self._shard.index]

    def _grouped(self, ids: NDArray[np.uint64]) -> tuple[layout.Groups, list[bytes]]:
        """Returns the grouping of the rows into commands, and their keys in this order."""
        partitions = partition_of(ids)
        if self._redis.spans_partitions:
            groups = layout.in_given_order(len(ids), self.rows_per_command)
        else:
            groups = layout.by_partition(partitions, self.rows_per_command)
        return groups, self.keys.encode(groups.arrange(ids), groups.arrange(partitions))

    def _reading(self, ids: NDArray[np.uint64]) -> _Step[RowBlock]:
        """Returns the step that reads rows."""
        groups, keys = self._grouped(ids)

        def rows(replies: Sequence[Reply]) -> RowBlock:
            values = [value for reply in replies for value in reply]
            versions, stored = layout.decode_rows(groups.arrange(ids), values, self._width)
            return RowBlock(ids, groups.restore(versions), groups.restore(stored))

        return _Step(groups, keys, [(b"MGET", *keys[part]) for part in groups.parts], rows)

    def _writing(self, block: RowBlock) -> _Step[NDArray[np.bool_]]:
        """Returns the step that stores the newer rows of a block."""
        groups, keys = self._grouped(block.ids)
        columns = (groups.arrange(block.ids), groups.arrange(block.versions), groups.arrange(block.rows))
        values, prefix = layout.encode_rows(*columns), self.pre_image_prefix
        commands = [self._claim.script(scripts.WRITE_NEWER, keys[part], prefix, *values[part]) for part in groups.parts]

        def stored(replies: Sequence[Reply]) -> NDArray[np.bool_]:
            return groups.restore(np.frombuffer(b"".join(replies), np.uint8) != ord("0"))

        return _Step(groups, keys, commands, stored)

    def _run(self, *steps: _Step[Any]) -> list[Any]:
        """Runs steps in order, in one round trip to each server, and returns the result of each."""
        keys = [step.keys[part.start] for step in steps for part in step.groups.parts]
        replies = self._redis.execute(keys, [command for step in steps for command in step.commands])
        answers, start = [], 0
        for step in steps:
            end = start + len(step.commands)
            answers.append(step.result(replies[start:end]))
            start = end
        return answers

    def _execute(self, groups: layout.Groups, keys: Sequence[bytes], commands: Sequence[Command]) -> list[Reply]:
        return self._redis.execute([keys[part.start] for part in groups.parts], commands)


class RedisCuts:
    """A CutStore over the pre-images that RedisRows writes."""

    def __init__(self, spec: TableSpec, shard: Shard, redis: RedisConnection, claim: Claim, rows: RedisRows) -> None:
        self._table = spec.name
        self._width = spec.row_width
        self._row_bytes = spec.row_bytes
        self._shard = shard
        self._redis = redis
        self._claim = claim
        self._rows = rows

    def resume(self, cuts: Sequence[int], saved: int) -> bool:  # noqa: ARG002
        return False  # Redis holds all rows

    def keep_pre_images(self, cut: int | None) -> None:
        self._rows.pre_image_prefix = b"" if cut is None else b"u%d:" % cut

    def save(self, cut: int, earlier: int, base: int) -> tuple[int, int]:  # noqa: ARG002
        changed = self._count(earlier) if earlier else len(self._rows)
        return changed, changed * self._row_bytes

    def rows_at(self, cut: int, later: Sequence[int]) -> Iterator[RowBlock]:
        pre_images = (self._pre_images(generation) for generation in (cut, *later))
        return first_of_each(chain(chain.from_iterable(pre_images), self._rows.scan()))

    def as_of(self, block: RowBlock, cut: int, later: Sequence[int]) -> RowBlock:
        partitions = partition_of(block.ids)
        groups = layout.by_partition(partitions, self._rows.rows_per_command)
        ids, partitions = groups.arrange(block.ids), groups.arrange(partitions)
        names = layout.split_rows(ids.view(np.uint8).reshape(-1, 8))
        for generation in reversed((cut, *later)):
            hashes = layout.partition_keys(f"u{generation}", self._table)
            keys = [hashes[partitions[part.start]] for part in groups.parts]
            commands = [(b"HMGET", key, *names[part]) for key, part in zip(keys, groups.parts, strict=True)]
            values = [value for reply in self._redis.execute(keys, commands) for value in reply]
            changed = groups.restore(np.array([value is not None for value in values], np.bool_))
            versions, rows = (groups.restore(each) for each in layout.decode_rows(ids, values, self._width))
            block.versions[changed] = versions[changed]
            block.rows[changed] = rows[changed]
        return block

    def put_back(self, cuts: Sequence[int]) -> int:
        count = 0
        for cut in reversed(cuts):
            for partition, name in zip(self._shard.partitions, self._hashes(cut), strict=True):
                for ids, values in self._stored(name):
                    keys = self._rows.keys.encode(ids, np.full(len(ids), partition))
                    self._redis.execute([name], [self._claim.script(scripts.PUT_BACK, keys, *values)])
                    count += len(ids)
            self.drop(cut)
        return count

    def drop(self, cut: int) -> None:
        names = self._hashes(cut)
        self._redis.execute(names, [self._claim.write(b"UNLINK", name) for name in names])

    def _count(self, cut: int) -> int:
        names = self._hashes(cut)
        return sum(self._redis.execute(names, [(b"HLEN", name) for name in names]))

    def _pre_images(self, cut: int) -> Iterator[RowBlock]:
        """Yields a cut's generation; version 0 where no row existed. Raises FailedPrecondition if one is damaged."""
        for name in self._hashes(cut):
            for ids, values in self._stored(name):
                yield RowBlock(ids, *layout.decode_rows(ids, values, self._width))

    def _stored(self, name: bytes) -> Iterator[tuple[NDArray[np.uint64], list[bytes]]]:
        """Yields the ids and values of one hash, in pieces."""
        cursor = b""
        while cursor != b"0":
            scan: Command = (b"HSCAN", name, cursor or b"0", b"COUNT", self._rows.rows_per_command)
            ((cursor, pairs),) = self._redis.execute([name], [scan])
            if pairs:
                yield layout.join_rows(pairs[::2], 8).view(np.uint64).ravel(), pairs[1::2]

    def _hashes(self, cut: int) -> list[bytes]:
        """Returns the keys of a generation's hashes, one per partition of this shard."""
        names = layout.partition_keys(f"u{cut}", self._table)
        return [names[partition] for partition in self._shard.partitions]


def _length(part: slice) -> int:
    return int(part.stop - part.start)
