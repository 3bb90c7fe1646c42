"""The tables in one Redis or a Redis Cluster."""

# ruff: noqa: D102 - the methods are documented in ps_server/core/store.py
from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import cast

from esd.ps_server.core.shard import Shard
from esd.ps_server.core.store import TableStore
from esd.ps_server.stores.redis.checkpoints import RedisBlobs, RedisHistory, dense_key, history_key, parts_key
from esd.ps_server.stores.redis.claim import Claim
from esd.ps_server.stores.redis.connection import Command, RedisAccess, connect
from esd.ps_server.stores.redis.cuts import RedisCuts
from esd.ps_server.stores.redis.earlier_format import EARLIER_FORMAT, convert
from esd.ps_server.stores.redis.insertions import Insertions
from esd.ps_server.stores.redis.layout import number, partition_keys
from esd.ps_server.stores.redis.partials import RedisPartials
from esd.ps_server.stores.redis.rows import RedisRows
from esd.ps_server.stores.redis.sample_log import RedisLog, log_key
from esd.ps_server.stores.redis.survey import Survey
from esd.ps_server.stores.redis.trust import MarkedConnection, check_configuration, check_rows
from esd.ps_server.stores.redis.watched import WatchedTransactions
from esd.services.domain.errors import EsdError, FailedPrecondition, InvalidArgument
from esd.services.domain.ids import PARTITIONS
from esd.services.domain.tables import OptimizerKind, OptimizerSpec, TableSpec

_LAYOUT = b"esd:layout"
_TABLES = b"esd:tables"
_FORMAT = 5


class RedisStore:
    """A Store over one Redis or a Redis Cluster."""

    name = "redis"
    loaded_bytes = 0

    def __init__(self, url: str, shard: Shard, timeout_seconds: float, access: RedisAccess) -> None:
        """Connects, and checks that Redis can keep this shard.

        Raises:
            InvalidArgument: the URL is malformed.
            Unavailable: Redis is out of reach.
            FailedPrecondition: Redis would drop rows when full, has lost some, or holds rows in the layout of another
                version.
        """
        self._shard = shard
        redis = connect(url, timeout_seconds, access)
        check_configuration(redis)
        self._redis = MarkedConnection(redis)
        self._claim = Claim(self._redis, shard)
        self._transactions = WatchedTransactions(self._redis, self._claim) if redis.spans_partitions else None
        self._serves = False
        self._insertions: dict[str, Insertions] = {}  # for each table that this server has begun or surveys
        self._surveys: list[Survey] = []
        self._check_layout()

    def tables(self) -> list[TableSpec]:
        (pairs,) = self._redis.execute([_TABLES], [(b"HGETALL", _TABLES)])
        return [
            _decode(name.decode(errors="replace"), text) for name, text in zip(pairs[::2], pairs[1::2], strict=True)
        ]

    def create(self, spec: TableSpec) -> tuple[TableSpec, bool]:
        name = spec.name.encode()
        write = self._claim.write(b"HSETNX", _TABLES, name, _encode(spec))
        created, text = self._redis.execute([_TABLES, _TABLES], [write, (b"HGET", _TABLES, name)])
        self._fence(spec.name)
        if created:
            self._insertions[spec.name] = Insertions(self._transactions, begun=True)
        return _decode(spec.name, text), bool(created)

    def open(self, spec: TableSpec) -> TableStore:
        begun = spec.name in self._insertions
        surveyed = not begun and self._serves and self._transactions is not None
        if surveyed:
            self._insertions[spec.name] = Insertions(self._transactions, begun=False)
        insertions = self._insertions.get(spec.name)
        rows = RedisRows(spec, self._shard, self._redis, self._claim, insertions)
        if surveyed and insertions is not None:
            self._surveys.append(Survey(spec.name, rows.places, self._redis, insertions))
        return TableStore(
            rows=rows,
            partials=RedisPartials(spec, self._shard, self._redis, self._claim, rows),
            cuts=RedisCuts(spec, self._redis, self._claim, rows),
            history=RedisHistory(spec.name, self._shard, self._redis, self._claim),
            blobs=RedisBlobs(spec.name, self._redis, self._claim),
            log=RedisLog(self._shard.index, spec.name, self._redis, self._claim),
        )

    def shards(self, table: str) -> int:
        key = history_key(table)
        (shards,) = self._redis.execute([key], [(b"HGET", key, b"shards")])
        return number(shards)

    def claim(self, *, exclusive: bool) -> None:
        self._claim.take(exclusive=exclusive)
        self._redis.begin_pulse(self._shard.index)
        self._claim.fence([_TABLES, _LAYOUT], alone=False)
        tables = self.tables()
        for spec in tables:
            self._fence(spec.name)
        self._convert(tables)
        self._serves = not exclusive
        if not exclusive:  # an exclusive claim is made by a tool, which must be able to look at a damaged store
            self._check_rows()

    def release(self) -> None:
        self._claim.leave()

    def ping(self) -> None:
        self._claim.renew()  # first: a server that has taken over has its own pulse, which would look like lost data
        self._redis.ping()
        self._check_rows()

    def close(self) -> None:
        for survey in self._surveys:
            survey.close()
        with suppress(EsdError):  # Redis may be gone already, or another server may have taken over
            self.release()
        if self._transactions is not None:
            self._transactions.close()
        self._redis.close()

    def _check_rows(self) -> None:
        (names,) = self._redis.execute([_TABLES], [(b"HKEYS", _TABLES)])
        check_rows(self._redis, [name.decode(errors="replace") for name in names], self._shard)

    def _fence(self, table: str) -> None:
        """Makes the claim known at every key that this server writes for a table."""
        partitions = partition_keys("e", table)
        self._claim.fence([partitions[partition] for partition in self._shard.partitions], alone=True)
        others = history_key(table), parts_key(table), dense_key(table), log_key(self._shard.index, table)
        self._claim.fence(others, alone=False)

    def _convert(self, tables: Sequence[TableSpec]) -> None:
        """Brings this shard's rows into the present format if their table was begun in the earlier one.

        The format in Redis changes first, so that no server of an earlier version claims a shard after that.
        """
        if self._stored_layout() == _layout(EARLIER_FORMAT):
            self._redis.execute([_LAYOUT], [self._claim.write(b"SET", _LAYOUT, _layout(_FORMAT))])
        convert(tables, self._shard, self._redis, self._claim)

    def _check_layout(self) -> None:
        new: Command = (b"SET", _LAYOUT, _layout(_FORMAT), b"NX")
        self._redis.execute([_LAYOUT], [new])
        stored = self._stored_layout()
        if stored not in (_layout(_FORMAT), _layout(EARLIER_FORMAT)):
            raise FailedPrecondition(
                f"Redis at {self._redis.address} holds tables in format {stored!r}, and this server keeps them "
                f"in format {_FORMAT}; use the version that wrote them, or another Redis database"
            )

    def _stored_layout(self) -> bytes | None:
        (stored,) = self._redis.execute([_LAYOUT], [(b"GET", _LAYOUT)])
        return cast("bytes | None", stored)


def _layout(table_format: int) -> bytes:
    return json.dumps({"format": table_format, "partitions": PARTITIONS}).encode()


def _encode(spec: TableSpec) -> bytes:
    fields = asdict(spec)
    del fields["name"]
    fields["optimizer"]["kind"] = spec.optimizer.kind.value
    if not spec.optimizer.max_norm:  # so that a server of an earlier version, which knows no limit, reads the rest
        del fields["optimizer"]["max_norm"]
    return json.dumps(fields).encode()


def _decode(name: str, text: bytes) -> TableSpec:
    try:
        fields = json.loads(text)
        optimizer = fields.pop("optimizer")
        kind = OptimizerKind(optimizer.pop("kind"))
        return TableSpec(name=name, optimizer=OptimizerSpec(kind, **optimizer), **fields)
    except (ValueError, TypeError, KeyError, AttributeError, InvalidArgument) as error:
        raise FailedPrecondition(
            f"the specification of table {name!r} in Redis ({_TABLES.decode()}) is damaged; give Redis its data back"
        ) from error
