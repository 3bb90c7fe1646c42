"""Tables in Redis."""

# ruff: noqa: D102 - the methods are documented in ps_server/core/store.py
from __future__ import annotations

import json
from dataclasses import asdict

from ps_server.core.shard import Shard
from ps_server.stores.redis.access import RedisAccess
from ps_server.stores.redis.checks import check_servers
from ps_server.stores.redis.layout import BUCKETS
from ps_server.stores.redis.marks import MarkedRoute
from ps_server.stores.redis.routes import open_route
from ps_server.stores.redis.table import RedisTable
from services.domain.errors import FailedPrecondition
from services.domain.tables import OptimizerKind, OptimizerSpec, TableSpec

_LAYOUT = b"esd:layout"
_TABLES = b"esd:tables"
_FORMAT = 1


class RedisStore:
    """A Store over one Redis or a Redis Cluster."""

    name = "redis"

    def __init__(self, url: str, shard: Shard, timeout_seconds: float, access: RedisAccess) -> None:
        """Connects, and makes sure that Redis can keep this shard.

        Raises:
            InvalidArgument: the URL is malformed.
            Unavailable: Redis is out of reach.
            FailedPrecondition: Redis would drop rows when full, has lost some, or holds those of another number
                of shards.
        """
        self._shard = shard
        route = open_route(url, timeout_seconds, access)
        check_servers(route)
        self._route = MarkedRoute(route)
        self._check_layout()

    def tables(self) -> list[TableSpec]:
        (pairs,) = self._route.execute([_TABLES], [(b"HGETALL", _TABLES)])
        return [_decode(name.decode(), text) for name, text in zip(pairs[::2], pairs[1::2], strict=True)]

    def create(self, spec: TableSpec) -> tuple[TableSpec, bool]:
        name = spec.name.encode()
        created, text = self._route.execute(
            [_TABLES, _TABLES], [(b"HSETNX", _TABLES, name, _encode(spec)), (b"HGET", _TABLES, name)]
        )
        return _decode(spec.name, text), bool(created)

    def open(self, spec: TableSpec) -> RedisTable:
        return RedisTable(spec, self._shard, self._route)

    def ping(self) -> None:
        self._route.ping()

    def close(self) -> None:
        self._route.close()

    def _check_layout(self) -> None:
        ours = {"format": _FORMAT, "shards": self._shard.count, "buckets": BUCKETS}
        text = json.dumps(ours).encode()
        _, stored = self._route.execute([_LAYOUT, _LAYOUT], [(b"SET", _LAYOUT, text, b"NX"), (b"GET", _LAYOUT)])
        theirs = json.loads(stored)
        if theirs != ours:
            raise FailedPrecondition(
                f"Redis at {self._route.address} holds tables of {theirs.get('shards')} shards in format "
                f"{theirs.get('format')} with {theirs.get('buckets')} buckets, this server has {self._shard.count}, "
                f"{_FORMAT} and {BUCKETS}; start as many servers as before, or use another Redis database"
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
