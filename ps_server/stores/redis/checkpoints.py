"""The data of a table in Redis other than its rows: history record, parts of checkpoints, dense parameters."""

# ruff: noqa: D102 - the methods are documented in ps_server/core/store.py
from __future__ import annotations

import hashlib

from esd.ps_server.core.history_record import HistoryRecord, resharded
from esd.ps_server.core.seal import DENSE_REMEDY, sealed, unsealed
from esd.ps_server.core.shard import Shard
from esd.ps_server.stores.redis import scripts
from esd.ps_server.stores.redis.claim import Claim
from esd.ps_server.stores.redis.connection import Command, RedisConnection, Reply
from esd.ps_server.stores.redis.layout import number
from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.parts import PIECE_BYTES, is_last, named_pieces, piece_name

_NO_CHECKPOINT = 0
_LONG = "dense, of several pieces"
_DIGEST_BYTES = 16


class RedisHistory:
    """A HistoryStore over a hash of the records of all shards, and their number.

    After a change of the number of shards, the first server that loads its record divides the records among the new
    shards.
    """

    def __init__(self, table: str, shard: Shard, redis: RedisConnection, claim: Claim) -> None:
        self._table = table
        self._shard = shard
        self._redis = redis
        self._claim = claim
        self._key = history_key(table)

    def load(self) -> bytes | None:
        records = self._records()
        before = number(records.get(b"shards"))
        if before not in (0, self._shard.count):
            self._reshard(records, before)
            records = self._records()
        return records.get(b"%d" % self._shard.index)

    def save(self, data: bytes) -> None:
        """Replaces the record. Raises FailedPrecondition if servers of another number of shards have taken over."""
        save = self._claim.script(scripts.SAVE_RECORD, [self._key], self._shard.count, data)
        (saved,) = self._redis.execute([self._key], [save])
        if not saved:
            raise FailedPrecondition(
                f"table {self._table!r} in Redis at {self._redis.address} is now served by another number of parameter "
                f"servers than {self._shard.count}; start all of them with one number of shards"
            )

    def _reshard(self, stored: dict[bytes, bytes], before: int) -> None:
        place = f"Redis at {self._redis.address}"
        data = [stored.get(b"%d" % index) for index in range(before)]
        records = [HistoryRecord() if each is None else HistoryRecord.decode(each, place) for each in data]
        new = [resharded(records, index).encode() for index in range(self._shard.count)]
        change = self._claim.script(scripts.RESHARD_RECORDS, [self._key], before, self._shard.count, *new)
        self._redis.execute([self._key], [change])

    def _records(self) -> dict[bytes, bytes]:
        """Returns the fields of the hash: `shards`, and the record of each shard under its index."""
        (pairs,) = self._redis.execute([self._key], [(b"HGETALL", self._key)])
        return dict(zip(pairs[::2], pairs[1::2], strict=True))


class RedisBlobs:
    """A BlobStore over a hash of parts and a string of dense parameters.

    Redis bounds a value to 512 MiB, so dense parameters of more than `PIECE_BYTES` continue in the hash, as parts of
    checkpoint 0, which no job makes. The seal of each piece names the whole, so that pieces of two uploads do not join.
    """

    def __init__(self, table: str, redis: RedisConnection, claim: Claim) -> None:
        self._redis = redis
        self._claim = claim
        self._parts = parts_key(table)
        self._dense = dense_key(table)

    def put_part(self, checkpoint: int, name: str, data: bytes) -> None:
        self._execute(self._parts, self._claim.write(b"HSET", self._parts, _field(checkpoint, name), data))

    def get_part(self, checkpoint: int, name: str) -> bytes | None:
        data: bytes | None = self._execute(self._parts, (b"HGET", self._parts, _field(checkpoint, name)))
        return data

    def checkpoints(self) -> set[int]:
        return {number(name.partition(b".")[0]) for name in self._fields()} - {_NO_CHECKPOINT}

    def drop_parts(self, checkpoint: int) -> None:
        names = [name for name in self._fields() if name.startswith(_field(checkpoint, ""))]
        if names:
            self._execute(self._parts, self._claim.write(b"HDEL", self._parts, *names))

    def put_dense(self, data: bytes) -> None:
        self.drop_parts(_NO_CHECKPOINT)
        if len(data) < PIECE_BYTES:
            self._set_dense(sealed("dense", data))
            return
        digest = hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()
        for name, content in named_pieces("dense", data):
            if name == "dense":
                self._set_dense(sealed(_LONG, digest + content))
            else:
                self.put_part(_NO_CHECKPOINT, name, sealed(f"{name} {digest.hex()}", content))

    def get_dense(self) -> bytes | None:
        stored: bytes | None = self._execute(self._dense, (b"GET", self._dense))
        if stored is None:
            return None
        place = f"{self._dense.decode()} in Redis at {self._redis.address}"
        others = [name for name in self._fields() if name.startswith(_field(_NO_CHECKPOINT, ""))]
        if not others:
            return unsealed("dense", stored, place, DENSE_REMEDY)
        first = unsealed(_LONG, stored, place, DENSE_REMEDY)
        digest, found = first[:_DIGEST_BYTES], [first[_DIGEST_BYTES:]]
        while not is_last(found[-1]):
            name = piece_name("dense", len(found))
            piece = self.get_part(_NO_CHECKPOINT, name) or b""
            found.append(unsealed(f"{name} {digest.hex()}", piece, place, DENSE_REMEDY))
        return b"".join(found)

    def _set_dense(self, value: bytes) -> None:
        self._execute(self._dense, self._claim.write(b"SET", self._dense, value))

    def _fields(self) -> list[bytes]:
        names: list[bytes] = self._execute(self._parts, (b"HKEYS", self._parts))
        return names

    def _execute(self, key: bytes, command: Command) -> Reply:
        return self._redis.execute([key], [command])[0]


def history_key(table: str) -> bytes:
    """Returns the key of a table's records: a hash of `shards`, and of each shard's record under its index."""
    return f"h:{table}".encode()


def parts_key(table: str) -> bytes:
    """Returns the key of the parts of a table's checkpoints, a hash."""
    return f"c:{table}".encode()


def dense_key(table: str) -> bytes:
    """Returns the key of a table's dense parameters, a string."""
    return f"d:{table}".encode()


def _field(checkpoint: int, name: str) -> bytes:
    return f"{checkpoint}.{name}".encode()
