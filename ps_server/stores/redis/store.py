"""The tables in one Redis or a Redis Cluster."""

# ruff: noqa: D102 - the methods are documented in ps_server/core/store.py
from __future__ import annotations

import json
import secrets
from contextlib import suppress
from dataclasses import asdict

from ps_server.core.shard import Shard
from ps_server.core.store import TableStore
from ps_server.stores.redis.checkpoints import RedisBlobs, RedisHistory, history_key
from ps_server.stores.redis.connection import RedisAccess, connect
from ps_server.stores.redis.partials import RedisPartials
from ps_server.stores.redis.rows import RedisCuts, RedisRows
from ps_server.stores.redis.sample_log import RedisLog
from ps_server.stores.redis.scripts import LEAVE
from ps_server.stores.redis.trust import MarkedConnection, check_configuration
from services.domain.errors import EsdError, FailedPrecondition
from services.domain.ids import PARTITIONS
from services.domain.tables import OptimizerKind, OptimizerSpec, TableSpec

_LAYOUT = b"esd:layout"
_TABLES = b"esd:tables"
_FORMAT = 3
_PRESENT_SECONDS = 10  # after which a server that is not heard of is gone; it is heard of every 2 s


class RedisStore:
    """A Store over one Redis or a Redis Cluster."""

    name = "redis"

    def __init__(self, url: str, shard: Shard, timeout_seconds: float, access: RedisAccess) -> None:
        """Connects, and makes sure that Redis can keep this shard.

        Raises:
            InvalidArgument: the URL is malformed.
            Unavailable: Redis is out of reach.
            FailedPrecondition: Redis would drop rows when full, has lost some, or holds rows in the layout of another
                version.
        """
        self._shard = shard
        self._present = b"esd:server:%d" % shard.index
        self._token = secrets.token_hex(8).encode()
        redis = connect(url, timeout_seconds, access)
        check_configuration(redis)
        self._redis = MarkedConnection(redis)
        self._check_layout()

    def tables(self) -> list[TableSpec]:
        (pairs,) = self._redis.execute([_TABLES], [(b"HGETALL", _TABLES)])
        return [_decode(name.decode(), text) for name, text in zip(pairs[::2], pairs[1::2], strict=True)]

    def create(self, spec: TableSpec) -> tuple[TableSpec, bool]:
        name = spec.name.encode()
        created, text = self._redis.execute(
            [_TABLES, _TABLES], [(b"HSETNX", _TABLES, name, _encode(spec)), (b"HGET", _TABLES, name)]
        )
        return _decode(spec.name, text), bool(created)

    def open(self, spec: TableSpec) -> TableStore:
        rows = RedisRows(spec, self._shard, self._redis)
        return TableStore(
            rows=rows,
            partials=RedisPartials(spec, self._shard, self._redis, rows),
            cuts=RedisCuts(spec, self._shard, self._redis, rows),
            history=RedisHistory(spec.name, self._shard, self._redis),
            blobs=RedisBlobs(spec.name, self._redis),
            log=RedisLog(self._shard.index, spec.name, self._redis),
        )

    def shards(self, table: str) -> int:
        key = history_key(table)
        (shards,) = self._redis.execute([key], [(b"HGET", key, b"shards")])
        return int(shards or 0)

    def claim(self, *, exclusive: bool) -> None:
        (present,) = self._redis.execute([self._present], [(b"EXISTS", self._present)])
        if exclusive and present:
            raise FailedPrecondition(
                f"parameter server {self._shard.index} runs on Redis at {self._redis.address}, or has died less than "
                f"{_PRESENT_SECONDS} s ago; stop what uses this store first"
            )
        self.ping()

    def ping(self) -> None:
        self._redis.ping()
        self._redis.execute([self._present], [(b"SET", self._present, self._token, b"EX", _PRESENT_SECONDS)])

    def close(self) -> None:
        with suppress(EsdError):  # Redis may be gone already
            self._redis.execute([self._present], [(b"EVAL", LEAVE, 1, self._present, self._token)])
        self._redis.close()

    def _check_layout(self) -> None:
        ours = {"format": _FORMAT, "partitions": PARTITIONS}
        text = json.dumps(ours).encode()
        _, stored = self._redis.execute([_LAYOUT, _LAYOUT], [(b"SET", _LAYOUT, text, b"NX"), (b"GET", _LAYOUT)])
        theirs = json.loads(stored)
        if theirs != ours:
            raise FailedPrecondition(
                f"Redis at {self._redis.address} holds tables in format {theirs.get('format')}, this server keeps them "
                f"in format {_FORMAT}; use the version that wrote them, or another Redis database"
            )


def _encode(spec: TableSpec) -> bytes:
    fields = asdict(spec)
    del fields["name"]
    fields["optimizer"]["kind"] = spec.optimizer.kind.value
    return json.dumps(fields).encode()


def _decode(name: str, text: bytes) -> TableSpec:
    fields = json.loads(text)
    optimizer = fields.pop("optimizer")
    kind = OptimizerKind(optimizer.pop("kind"))
    return TableSpec(name=name, optimizer=OptimizerSpec(kind, **optimizer), **fields)
