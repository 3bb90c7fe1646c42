"""The log of a sample stream, kept as a Redis Stream."""

# ruff: noqa: D102 - the methods are documented in ps_server/core/sample_log.py
from __future__ import annotations

from collections.abc import Iterator

from ps_server.stores.redis.claim import Claim
from ps_server.stores.redis.connection import Command, RedisConnection, Reply
from services.domain.batches import LogEntry

_READ_ENTRIES = 16  # in one reply; a batch may have megabytes


class RedisLog:
    """A LogStore over one Redis Stream.

    The entry that ends at sample e has the ID e-0, the mark of the stream's end there e-1. So the IDs rise, an entry
    cannot be added twice, and a checkpoint at sample s covers the entries whose IDs are below s-1.
    """

    durable = True  # as durable as Redis keeps anything

    def __init__(self, shard: int, table: str, redis: RedisConnection, claim: Claim) -> None:
        self._key = log_key(shard, table)
        self._redis = redis
        self._claim = claim

    def last(self) -> LogEntry | None:
        reply = self._execute((b"XREVRANGE", self._key, b"+", b"-", b"COUNT", 1))
        return _decode(reply[0]) if reply else None

    def append(self, entry: LogEntry) -> None:
        fields = (b"samples", entry.samples, b"batch", entry.batch)
        self._execute(self._claim.write(b"XADD", self._key, _id(entry.end, closes=entry.closes), *fields))

    def read(self) -> Iterator[LogEntry]:
        start = b"-"
        while reply := self._execute((b"XRANGE", self._key, start, b"+", b"COUNT", _READ_ENTRIES)):
            for item in reply:
                yield _decode(item)
            start = b"(" + reply[-1][0]

    def trim(self, position: int) -> None:
        self._execute(self._claim.write(b"XTRIM", self._key, b"MINID", _id(position, closes=True)))

    def clear(self) -> None:
        self._execute(self._claim.write(b"DEL", self._key))

    def _execute(self, command: Command) -> Reply:
        return self._redis.execute([self._key], [command])[0]


def log_key(shard: int, table: str) -> bytes:
    """The stream of a table's sample log on one shard."""
    return f"s{shard}:{table}".encode()


def _id(end: int, *, closes: bool) -> bytes:
    return f"{end}-{int(closes)}".encode()


def _decode(item: tuple[bytes, list[bytes]]) -> LogEntry:
    name, fields = item
    end = int(name.partition(b"-")[0])
    samples = int(fields[1])
    return LogEntry(end - samples, samples, fields[3])
