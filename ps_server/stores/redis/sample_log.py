"""The log of a sample stream, kept as a Redis Stream."""

# ruff: noqa: D102 - the methods are documented in ps_server/core/sample_log.py
from __future__ import annotations

from collections.abc import Iterator

from esd.ps_server.core.seal import LOG_REMEDY, sealed, unsealed
from esd.ps_server.stores.redis.claim import Claim
from esd.ps_server.stores.redis.connection import Command, RedisConnection, Reply
from esd.services.domain.batches import LogEntry

_READ_ENTRIES = 16  # per reply; one batch may have megabytes


class RedisLog:
    """A LogStore over one Redis Stream.

    The entry that ends at sample e has the ID e-0; the mark of the stream's end there has the ID e-1. So the IDs rise,
    no entry can be added twice, and a checkpoint at sample s covers the entries whose IDs are below s-1.
    """

    durable = True  # as durable as this Redis

    def __init__(self, shard: int, table: str, redis: RedisConnection, claim: Claim) -> None:
        self._key = log_key(shard, table)
        self._redis = redis
        self._claim = claim

    def last(self) -> LogEntry | None:
        reply = self._execute((b"XREVRANGE", self._key, b"+", b"-", b"COUNT", 1))
        return self._decode(reply[0]) if reply else None

    def append(self, entry: LogEntry) -> None:
        name = _id(entry.end, closes=entry.closes)
        fields = (b"samples", entry.samples, b"batch", sealed(_sealed_name(name, entry.samples), entry.batch))
        self._execute(self._claim.write(b"XADD", self._key, name, *fields))

    def read(self) -> Iterator[LogEntry]:
        start = b"-"
        while reply := self._execute((b"XRANGE", self._key, start, b"+", b"COUNT", _READ_ENTRIES)):
            for item in reply:
                yield self._decode(item)
            start = b"(" + reply[-1][0]

    def trim(self, position: int) -> None:
        self._execute(self._claim.write(b"XTRIM", self._key, b"MINID", _id(position, closes=True)))

    def clear(self) -> None:
        self._execute(self._claim.write(b"DEL", self._key))

    def _decode(self, item: tuple[bytes, list[bytes]]) -> LogEntry:
        name, fields = item
        place = f"entry {name.decode()} of the sample log {self._key.decode()} in Redis at {self._redis.address}"
        known = dict(zip(fields[::2], fields[1::2], strict=False))
        samples = known.get(b"samples", b"")
        count = int(samples) if samples.isdigit() else -1  # no entry was sealed with -1, so its checksum will differ
        batch = unsealed(_sealed_name(name, count), known.get(b"batch", b""), place, LOG_REMEDY)
        return LogEntry(int(name.partition(b"-")[0]) - count, count, batch)

    def _execute(self, command: Command) -> Reply:
        return self._redis.execute([self._key], [command])[0]


def log_key(shard: int, table: str) -> bytes:
    """Returns the key of the stream of a table's sample log on one shard."""
    return f"s{shard}:{table}".encode()


def _id(end: int, *, closes: bool) -> bytes:
    return f"{end}-{int(closes)}".encode()


def _sealed_name(name: bytes, samples: int) -> str:
    return f"{name.decode()} {samples}"
