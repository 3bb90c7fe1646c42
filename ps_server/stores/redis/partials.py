"""Pending partial gradients: in memory for the computation, and in Redis to outlive the process."""

# ruff: noqa: D102 - the methods are documented in ps_server/core/store.py
from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from esd.native.rows import checksums
from esd.ps_server.core.shard import Shard
from esd.ps_server.core.store import RowStore, Splits
from esd.ps_server.stores.memory import MemoryPartials
from esd.ps_server.stores.redis import layout
from esd.ps_server.stores.redis.claim import Claim
from esd.ps_server.stores.redis.connection import Command, RedisConnection
from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.ids import GOLDEN, partition_of
from esd.services.domain.rows import GradientBlock
from esd.services.domain.tables import TableSpec

_SCAN_FIELDS = 500  # fields that Redis examines per step


class RedisPartials:
    """A PartialStore that stores every change in Redis before it changes its copy in memory."""

    def __init__(self, spec: TableSpec, shard: Shard, redis: RedisConnection, claim: Claim, rows: RowStore) -> None:
        self._memory = MemoryPartials(spec.dimension)
        self._redis = redis
        self._claim = claim
        self._rows = rows
        self._hashes = layout.partition_keys("g", spec.name)
        self._own = [self._hashes[partition] for partition in shard.partitions]
        self._gradients_per_command = layout.rows_per_command(4 * spec.dimension)
        # A field of these hashes identifies a gradient; its value holds the split and the gradient.
        self._field = np.dtype([("id", "<u8"), ("worker", "u1")])
        self._value, self._wide_value = (_value_of(spec.dimension, words) for words in (1, 2))

    @property
    def memory_bytes(self) -> int:
        return self._memory.memory_bytes

    def load(self) -> None:
        """Loads the pending gradients from Redis.

        It removes gradients whose version the row has reached: a crash after writing the row and before discarding its
        gradients leaves them behind.
        """
        for block in self._stored():
            made = block.targets <= self._rows.versions(block.ids)
            if made.any():
                self._remove(block.ids[made], np.full(int(made.sum()), block.worker, np.uint8))
            self._memory.add(block[~made])

    def inspect(self, block: GradientBlock) -> NDArray[np.uint8]:
        return self._memory.inspect(block)

    def add(self, block: GradientBlock) -> None:
        groups = layout.by_place(partition_of(block.ids), self._gradients_per_command)
        ids = groups.arrange(block.ids)
        values = np.empty(len(block), self._value if block.contributors.ndim == 1 else self._wide_value)
        values["target"] = groups.arrange(block.targets)
        values["contributors"] = groups.arrange(block.contributors)
        values["step"] = groups.arrange(block.steps)
        values["gradient"] = groups.arrange(block.gradients)
        values["checksum"] = _checksums(ids, block.worker, values)
        pairs: list[bytes] = [b""] * (2 * len(block))
        pairs[::2] = self._fields(ids, np.full(len(ids), block.worker, np.uint8))
        pairs[1::2] = layout.split_rows(_packed(values))
        hashes = self._hashes_of(ids, groups.parts)
        self._redis.execute(
            hashes,
            [
                self._claim.write(b"HSET", key, *pairs[2 * part.start : 2 * part.stop])
                for key, part in zip(hashes, groups.parts, strict=True)
            ],
        )
        self._memory.add(block)

    def sum(self, block: GradientBlock) -> NDArray[np.float32]:
        return self._memory.sum(block)

    def discard(self, ids: NDArray[np.uint64]) -> None:
        # The pending contributors of each id, as one bit per worker slot, name the fields to remove.
        masks = np.unpackbits(self._memory.splits(ids).contributors.view(np.uint8), axis=1, bitorder="little")
        rows, workers = np.nonzero(masks)
        self._remove(ids[rows], workers.astype(np.uint8))
        self._memory.discard(ids)

    def splits(self, ids: NDArray[np.uint64]) -> Splits:
        return self._memory.splits(ids)

    def clear(self) -> None:
        self._redis.execute(self._own, [self._claim.write(b"UNLINK", key) for key in self._own])
        self._memory.clear()

    def __len__(self) -> int:
        return len(self._memory)

    def _remove(self, ids: NDArray[np.uint64], workers: NDArray[np.uint8]) -> None:
        groups = layout.by_place(partition_of(ids), self._gradients_per_command)
        ids, workers = groups.arrange(ids), groups.arrange(workers)
        fields = self._fields(ids, workers)
        hashes = self._hashes_of(ids, groups.parts)
        pairs = zip(hashes, groups.parts, strict=True)
        self._redis.execute(hashes, [self._claim.write(b"HDEL", key, *fields[part]) for key, part in pairs])

    def _stored(self) -> Iterator[GradientBlock]:
        """Yields all pending gradients in Redis, in blocks of one worker each."""
        for key in self._own:
            cursor = b""
            while cursor != b"0":
                scan: Command = (b"HSCAN", key, cursor or b"0", b"COUNT", _SCAN_FIELDS)
                ((cursor, pairs),) = self._redis.execute([key], [scan])
                found = list(zip(pairs[::2], pairs[1::2], strict=True))
                wide = [len(value) == self._wide_value.itemsize for _, value in found]
                for kind, mine in ((self._value, [not each for each in wide]), (self._wide_value, wide)):
                    yield from self._blocks(kind, list(compress(found, mine)))

    def _blocks(self, kind: np.dtype[np.void], pairs: list[tuple[bytes, bytes]]) -> Iterator[GradientBlock]:
        names = layout.join_rows([field for field, _ in pairs], self._field.itemsize).view(self._field).ravel()
        parts = layout.join_rows([value for _, value in pairs], kind.itemsize).view(kind).ravel()
        for worker in np.unique(names["worker"]):
            mine = names["worker"] == worker
            part = parts[mine]
            ids = np.ascontiguousarray(names["id"][mine])
            damaged = _checksums(ids, int(worker), part) != part["checksum"]
            if damaged.any():
                raise FailedPrecondition(
                    f"the partial gradient of worker {worker} for row {ids[np.argmax(damaged)]} in Redis at "
                    f"{self._redis.address} is damaged: its checksum differs. `esd checkpoint restore` drops it"
                )
            yield GradientBlock(
                ids=ids,
                targets=np.ascontiguousarray(part["target"]),
                contributors=np.ascontiguousarray(part["contributors"]),
                steps=part["step"].astype(np.uint32),
                rates=np.zeros(len(ids), np.float32),  # only the rate of the last contribution is used
                gradients=np.ascontiguousarray(part["gradient"]),
                worker=int(worker),
            )

    def _fields(self, ids: NDArray[np.uint64], workers: NDArray[np.uint8]) -> list[bytes]:
        names = np.empty(len(ids), self._field)
        names["id"] = ids
        names["worker"] = workers
        return layout.split_rows(_packed(names))

    def _hashes_of(self, ids: NDArray[np.uint64], parts: Sequence[slice]) -> list[bytes]:
        partitions = partition_of(ids)
        return [self._hashes[partitions[part.start]] for part in parts]


def _value_of(dimension: int, words: int) -> np.dtype[np.void]:
    """Returns the value of a field, in a job whose sets of workers have one word or two."""
    contributors = ("contributors", "<u8", (words,)) if words > 1 else ("contributors", "<u8")
    split = [("target", "<i8"), contributors, ("step", "<i8")]
    return np.dtype([*split, ("gradient", "<f4", (dimension,)), ("checksum", "<u4")])


def _checksums(ids: NDArray[np.uint64], worker: int, values: NDArray[np.void]) -> NDArray[np.uint32]:
    """Returns a checksum per gradient over its id, its worker and its value."""
    names = ids ^ np.uint64(worker * GOLDEN & 0xFFFFFFFFFFFFFFFF)
    covered = np.ascontiguousarray(_packed(values)[:, 8:-4]).view(np.float32)
    return checksums(names, np.ascontiguousarray(values["target"]), covered)


def _packed(records: NDArray[np.void]) -> NDArray[np.uint8]:
    return records.view(np.uint8).reshape(len(records), records.dtype.itemsize)
