"""One table's rows in Redis."""

# ruff: noqa: D102 - the methods are documented in ps_server/core/store.py
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Generic, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from esd.native import rows as native
from esd.ps_server.core.shard import Shard
from esd.ps_server.stores.redis import layout, records, row_scripts
from esd.ps_server.stores.redis.claim import CLAIMS, Claim
from esd.ps_server.stores.redis.connection import Command, RedisConnection, Reply
from esd.ps_server.stores.redis.insertions import Insertions, NewRows
from esd.ps_server.stores.redis.scripts import REMOVE
from esd.services.domain.rows import RowBlock
from esd.services.domain.tables import TableSpec

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows that one command names.

    Attributes:
        part: their part of the order in which the rows are grouped.
        hashes: the keys of their hashes.
        counts: the number of rows in each hash, packed.
        names: the names of the rows, packed.
    """

    part: slice
    hashes: list[bytes]
    counts: bytes
    names: bytes


@dataclass(frozen=True, slots=True)
class _Step(Generic[T]):
    """Commands that belong together, and the conversion of their replies.

    Attributes:
        keys: a key for each command.
        commands: the commands.
        result: converts their replies to the result.
    """

    keys: Sequence[bytes]
    commands: Sequence[Command]
    result: Callable[[Sequence[Reply]], T]


class RedisRows:
    """A RowStore over Redis. Every read and write is one pipeline, of a script per few thousand rows.

    Attributes:
        hashes: the keys of the hashes of this table's rows, of all shards.
        places: the places of this shard's hashes in `hashes`.
        rows_per_command: the most rows that one command should name.
        rows_per_script: the most rows that one call of a script should name.
        pre_image_prefix: prefix of the keys of the hashes that receive pre-images; empty: none are kept.
    """

    def __init__(
        self,
        spec: TableSpec,
        shard: Shard,
        redis: RedisConnection,
        claim: Claim,
        insertions: Insertions | None,
    ) -> None:
        """Opens the rows of a table.

        Args:
            spec: the table.
            shard: the partitions of this server.
            redis: where the rows are.
            claim: the claim of the shard.
            insertions: which know the rows that were ever written, so that Redis is not asked for others; None: these
                are unknown.
        """
        self.hashes = layout.quarter_keys("e", spec.name)
        self.places = layout.places_of(shard.partitions)
        self.rows_per_command = layout.rows_per_command(spec.row_bytes)
        self.rows_per_script = layout.rows_per_script(spec.row_bytes)
        self.pre_image_prefix = b""
        self._width = spec.row_width
        self._short = records.short_record_bytes(spec.row_width)
        self._redis = redis
        self._claim = claim
        self._insertions = insertions
        counters = layout.partition_keys("n", spec.name)
        self._counters = [counters[partition] for partition in shard.partitions]

    def versions(self, ids: NDArray[np.uint64]) -> NDArray[np.int64]:
        there = self._may_be_written(ids)
        versions = np.zeros(len(ids), np.int64)
        versions[there] = self._ask(self._reading_versions(ids[there]), certain=bool(there.all()))
        return versions

    def read(self, ids: NDArray[np.uint64]) -> RowBlock:
        there = self._may_be_written(ids)
        if there.all():
            return self._ask(self._reading(ids), certain=True)
        block = RowBlock(ids, np.zeros(len(ids), np.int64), np.zeros((len(ids), self._width), np.float32))
        stored = self._ask(self._reading(ids[there]), certain=False)
        block.versions[there] = stored.versions
        block.rows[there] = stored.rows
        return block

    def write_newer(self, block: RowBlock) -> NDArray[np.bool_]:
        if self._insertions is None:
            return self._write(block)
        with self._insertions.taken(block.ids) as free:
            new = free & (block.versions > 0)
            # A few new rows among others are not worth commands of their own.
            worth = self._insertions.possible and 2 * new.sum() > len(new)
            stored = self._insert(self._insertions, block, new) if worth else None
            return self._write(block) if stored is None else stored

    def forget_older(self, ids: NDArray[np.uint64], below: int) -> int:
        self.settle()
        self.learn(ids)
        _, commands = self._grouped(ids)
        return sum(
            self._redis.execute(
                [rows.hashes[0] for rows in commands],
                [self._changing_script(row_scripts.FORGET_OLDER, rows, below) for rows in commands],
            )
        )

    def scan(self) -> Iterator[RowBlock]:
        seen = native.IdSet()  # HSCAN may return a field twice if Redis rehashes meanwhile
        for place in self.places:
            for fields, values in self.scan_hash(self.hashes[place]):
                block = records.decoded_hash(place, fields, values, self._width)
                yield from block[seen.add(block.ids)].pieces(self.rows_per_command)

    def __len__(self) -> int:
        return self.totals()[0]

    def totals(self) -> tuple[int, int]:
        replies = self._redis.execute(
            self._counters, [(b"HMGET", counter, b"rows", b"trainings") for counter in self._counters]
        )
        rows, trainings = zip(*replies, strict=True)
        return sum(map(layout.number, rows)), sum(map(layout.number, trainings))

    def clear(self) -> None:
        self.settle()
        hashes = [[self.hashes[place] for place in part] for part in layout.quarters(self.places)]
        commands = [
            self._claim.script(REMOVE, [counter, *part]) for counter, part in zip(self._counters, hashes, strict=True)
        ]
        self._redis.execute(self._counters, commands)

    def settle(self) -> None:
        """Must be called before rows are removed or put back; after it, no earlier push runs any more in Redis.

        Raises as `Claim.renew` does.
        """
        if self._insertions is not None:
            self._insertions.settle()

    def learn(self, ids: NDArray[np.uint64]) -> None:
        """Must be called with rows before they are removed or put back, for both leave pre-images or rows behind."""
        if self._insertions is not None:
            self._insertions.learn(ids)

    def scan_hash(self, key: bytes) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """Yields the fields and values of one hash, in pieces."""
        cursor = b""
        while cursor != b"0":
            scan: Command = (b"HSCAN", key, cursor or b"0", b"COUNT", self.rows_per_command)
            ((cursor, pairs),) = self._redis.execute([key], [scan])
            if pairs:
                yield pairs[::2], pairs[1::2]

    def _grouped(self, ids: NDArray[np.uint64]) -> tuple[layout.Groups, list[_Rows]]:
        """Returns the grouping of rows into commands, and the rows of each command."""
        places, names = native.addresses(ids)
        span = len(self.hashes) if self._redis.spans_partitions else layout.QUARTERS
        groups = layout.by_field(places, names, self.rows_per_script, span)
        places, names = groups.arrange(places), groups.arrange(names)
        commands = []
        for part in groups.parts:
            runs = layout.runs_of_script(places[part])
            hashes = [self.hashes[place] for place in places[part][[run.start for run in runs]].tolist()]
            counts = np.array([run.stop - run.start for run in runs], "<u2").tobytes()
            commands.append(_Rows(part, hashes, counts, names[part].tobytes()))
        return groups, commands

    def _may_be_written(self, ids: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Returns which rows Redis may have, bool [r]."""
        return np.ones(len(ids), np.bool_) if self._insertions is None else self._insertions.may_be_written(ids)

    def _write(self, block: RowBlock) -> NDArray[np.bool_]:
        """Stores the newer rows of a block by scripts."""
        (stored,) = self._run(self._writing(block))
        return cast("NDArray[np.bool_]", stored)

    def _insert(self, insertions: Insertions, block: RowBlock, free: NDArray[np.bool_]) -> NDArray[np.bool_] | None:
        """Stores the rows in free fields by plain commands, and the newer ones of the others by a script.

        Returns:
            Which were stored, bool [r]; None if nothing is known, so that all of them must be stored by scripts.
        """
        new = block[free]
        groups, commands = self._grouped(new.ids)
        if len(commands) != 1:  # too many for Redis to do nothing else meanwhile
            return None
        (rows,) = commands
        versions = groups.arrange(new.versions)
        packed, starts = native.encode_records(groups.arrange(new.ids), versions, groups.arrange(new.rows))
        counts = np.frombuffer(rows.counts, "<u2")
        names = np.frombuffer(rows.names, np.uint8).reshape(-1, records.NAME_BYTES)
        others = self._writing(block[~free])
        outcome = insertions.insert(
            NewRows(rows.hashes, counts, names, versions, packed, starts, self.pre_image_prefix), others.commands
        )
        if outcome is None:
            return None
        inserted, replies = outcome
        stored = np.empty(len(block), np.bool_)
        stored[~free] = others.result(replies)
        stored[free] = True if inserted else self._write(new)
        return stored

    def _ask(self, step: _Step[T], *, certain: bool) -> T:
        """Runs a step that reads rows.

        If not `certain`, other rows are taken for absent because this server has written none of them. That is right
        as long as no other server has taken over, which Redis is asked in place of these rows.
        """
        steps: list[_Step[Any]] = [step]
        if not certain:
            steps.append(_Step([CLAIMS], [self._claim.confirmation()], list))
        return cast("T", self._run(*steps)[0])

    def _reading_versions(self, ids: NDArray[np.uint64]) -> _Step[NDArray[np.int64]]:
        """Returns the step that reads versions."""
        groups, commands = self._grouped(ids)

        def versions(replies: Sequence[Reply]) -> NDArray[np.int64]:
            heads = np.frombuffer(b"".join(replies), np.uint8).reshape(len(ids), records.HEAD_BYTES)
            return groups.restore(records.versions_of(heads))

        reading = [self._reading_script(row_scripts.READ_VERSIONS, rows, self._short) for rows in commands]
        return _Step([rows.hashes[0] for rows in commands], reading, versions)

    def _reading(self, ids: NDArray[np.uint64]) -> _Step[RowBlock]:
        """Returns the step that reads rows."""
        groups, commands = self._grouped(ids)

        def block(replies: Sequence[Reply]) -> RowBlock:
            values = list(chain.from_iterable(chain.from_iterable(replies)))
            read = records.decoded(groups.arrange(ids), values, self._width)
            return RowBlock(ids, groups.restore(read.versions), groups.restore(read.rows))

        reading = [self._reading_script(row_scripts.READ, rows) for rows in commands]
        return _Step([rows.hashes[0] for rows in commands], reading, block)

    def _writing(self, block: RowBlock) -> _Step[NDArray[np.bool_]]:
        """Returns the step that stores the newer rows of a block."""
        groups, commands = self._grouped(block.ids)
        packed, starts = native.encode_records(
            groups.arrange(block.ids), groups.arrange(block.versions), groups.arrange(block.rows)
        )
        writing = [
            self._changing_script(
                row_scripts.WRITE_NEWER, rows, packed[starts[rows.part.start] : starts[rows.part.stop]].tobytes()
            )
            for rows in commands
        ]

        def stored(replies: Sequence[Reply]) -> NDArray[np.bool_]:
            return groups.restore(np.frombuffer(b"".join(replies), np.uint8) != ord("0"))

        return _Step([rows.hashes[0] for rows in commands], writing, stored)

    def _reading_script(self, script: bytes, rows: _Rows, *arguments: int) -> Command:
        return (b"EVAL", script, len(rows.hashes), *rows.hashes, *arguments, rows.counts, rows.names)

    def _changing_script(self, script: bytes, rows: _Rows, argument: bytes | int) -> Command:
        """Returns a script that keeps pre-images of the rows that it changes."""
        prefix = self.pre_image_prefix
        return self._claim.script(script, rows.hashes, prefix, self._short, rows.counts, rows.names, argument)

    def _run(self, *steps: _Step[Any]) -> list[Any]:
        """Runs steps in order, in one round trip to each server, and returns the result of each."""
        keys = [key for step in steps for key in step.keys]
        replies = self._redis.execute(keys, [command for step in steps for command in step.commands])
        answers, start = [], 0
        for step in steps:
            end = start + len(step.commands)
            answers.append(step.result(replies[start:end]))
            start = end
        return answers
