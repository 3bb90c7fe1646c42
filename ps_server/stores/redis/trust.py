"""The conditions under which a Redis is trusted with rows.

At the start no server may be configured to drop rows when its memory is full (`check_configuration`). Later Redis must
still be the one that this server started with: not emptied, and not restarted without its data or with old data
(`MarkedConnection`); and no row may have vanished from it (`check_rows`).
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Sequence
from itertools import chain

from redis import Redis, exceptions

from esd.ps_server.core.shard import Shard
from esd.ps_server.core.store import StoreLost
from esd.ps_server.stores.redis.connection import Command, RedisConnection, Reply, lost_data, translated_errors
from esd.ps_server.stores.redis.layout import QUARTERS, partition_keys, places_of, quarter_keys
from esd.ps_server.stores.redis.scripts import MISSING_ROWS
from esd.services.domain.errors import FailedPrecondition

_log = logging.getLogger(__name__)

_CLUSTER_MARKS = 128  # so many that each of a few dozen nodes has one
_LEAVING_SECONDS = 2.0  # the longest that another server may take to write its marks
_LOOK_SECONDS = 0.05


def check_configuration(redis: RedisConnection) -> None:
    """Checks the configuration of every server, if it may be read.

    Raises:
        Unavailable: a server is out of reach.
        FailedPrecondition: a server would drop rows when its memory is full.
    """
    for server in redis.servers():
        with translated_errors(redis.address):
            server.ping()
            try:
                found = {**server.config_get("maxmemory*"), **server.config_get("append*")}
            except (exceptions.ResponseError, exceptions.NoPermissionError):
                _log.warning("Redis at %s does not show its configuration; it must be noeviction", redis.address)
                continue
        if int(found["maxmemory"] or 0) > 0 and found["maxmemory-policy"] != "noeviction":
            raise FailedPrecondition(
                f"Redis at {redis.address} would drop rows when full: its maxmemory-policy is "
                f"{found['maxmemory-policy']}, set noeviction"
            )
        if found["appendonly"] != "yes" or found["appendfsync"] != "always":
            _log.warning(
                "Redis at %s has appendonly %s and appendfsync %s: acknowledged pushes may be lost when it dies; "
                "appendonly yes and appendfsync always keep them all",
                redis.address,
                found["appendonly"],
                found["appendfsync"],
            )


def check_rows(redis: RedisConnection, tables: Sequence[str], shard: Shard) -> None:
    """Compares the number of stored rows of each partition of this shard with the partition's counter.

    Every script that adds or removes rows counts them in the same step, so fewer rows than were counted mean that
    another program has removed some.

    Raises:
        StoreLost: rows are gone.
    """
    partitions = [part for table in tables for part in _counted_keys(table, shard)]
    if redis.spans_partitions:  # one command for all of them
        partitions = [list(chain.from_iterable(partitions))] if partitions else []
    commands: list[Command] = [(b"EVAL", MISSING_ROWS, len(keys), *keys, QUARTERS) for keys in partitions]
    missing = sum(redis.execute([keys[0] for keys in partitions], commands))
    if missing > 0:
        raise StoreLost(
            f"Redis at {redis.address} has lost {missing} rows or more: it holds fewer rows than were stored. "
            "Stop its users, then find a whole checkpoint with `esd checkpoint verify` and go back to it "
            "with `esd checkpoint restore`; or restore the data of Redis; or begin anew with an empty one"
        )


def _counted_keys(table: str, shard: Shard) -> list[list[bytes]]:
    """Returns for each partition of a shard the keys of its counters and of its hashes of rows."""
    counters, hashes = partition_keys("n", table), quarter_keys("e", table)
    return [
        [counters[partition], *(hashes[place] for place in places_of([partition]))] for partition in shard.partitions
    ]


class MarkedConnection:
    """A RedisConnection that answers only while Redis is the one that this server started with, and whole.

    A Redis that was restarted without its data or with old data, that was emptied, or that was replaced by another one
    at its address, would accept pushes and answer pulls as if later writes had never happened. Two values reveal it:

    - Marks are random values, at least one on every node, which the first server writes and no server changes.
    - The pulse is a number per mark that a server raises with every ping. A Redis that has returned to an earlier
      state has an earlier number.

    Both are compared with every ping. They are also compared after every new socket, before the replies that came over
    it are returned.
    """

    def __init__(self, redis: RedisConnection) -> None:
        """Writes the marks, unless they exist.

        Raises:
            Unavailable: Redis is out of reach.
            StoreLost: a node of a cluster has lost its marks.
        """
        self.address = redis.address
        self.spans_partitions = redis.spans_partitions
        self._redis = redis
        numbers = range(1 if redis.spans_partitions else _CLUSTER_MARKS)
        self._keys = [b"esd:mark:%d" % number for number in numbers]
        self._pulses: list[bytes] = []  # none before `begin_pulse`
        self._known = self._sent = secrets.randbits(40)  # bounds of the pulse: last confirmed value, last sent value
        self._sockets_checked = redis.sockets_opened
        self._check_whole()
        token = secrets.token_hex(8).encode()
        redis.execute(self._keys, [(b"SET", key, token, b"NX") for key in self._keys])
        self._marks = self._read(self._keys)

    @property
    def sockets_opened(self) -> int:
        """Number of sockets opened so far, to any server."""
        return self._redis.sockets_opened

    def execute(self, keys: Sequence[bytes], commands: Sequence[Command]) -> list[Reply]:
        """Sends commands as RedisConnection does. Raises StoreLost also if Redis has lost its data."""
        replies = self._redis.execute(keys, commands)
        if self._redis.sockets_opened != self._sockets_checked:
            opened = self._redis.sockets_opened
            self._check()
            self._sockets_checked = opened
        return replies

    def servers(self) -> list[Redis]:
        """Returns a client for each server that holds data."""
        return self._redis.servers()

    def begin_pulse(self, shard: int) -> None:
        """Writes the pulse of a shard, which only this process changes from now on."""
        pulses = [b"esd:pulse:%d:%d" % (shard, number) for number in range(len(self._keys))]
        self._redis.execute(pulses, [(b"SET", pulse, self._sent) for pulse in pulses])
        self._pulses = pulses

    def ping(self) -> None:
        """Checks marks and pulse, and raises the pulse.

        Raises:
            Unavailable: a server is out of reach.
            StoreLost: a server has lost its data.
        """
        self._check()
        self._sent += 1
        self._redis.execute(self._pulses, [(b"SET", pulse, self._sent) for pulse in self._pulses])
        self._known = self._sent

    def close(self) -> None:
        """Closes all sockets."""
        self._redis.close()

    def _check(self) -> None:
        """Raises StoreLost unless marks and pulse have their expected values."""
        known = self._known  # read before the pulse, because another thread may raise the pulse meanwhile
        found = self._read([*self._keys, *self._pulses])
        if found[: len(self._keys)] != self._marks or None in found:
            raise lost_data(self.address, "the marks that were left in it are gone")
        for pulse in found[len(self._keys) :]:
            if not known <= _number(pulse) <= self._sent:
                raise lost_data(self.address, "it is as it was earlier, or another parameter server has taken over")

    def _check_whole(self) -> None:
        """Checks that all marks exist, or none. Another server may be writing them just now, which takes a moment."""
        deadline = time.monotonic() + _LEAVING_SECONDS
        while any(there := self._read(self._keys)) and not all(there):
            if time.monotonic() > deadline:
                raise lost_data(self.address, "the marks that were left in it are gone from a node")
            time.sleep(_LOOK_SECONDS)

    def _read(self, keys: Sequence[bytes]) -> list[Reply]:
        return self._redis.execute(keys, [(b"GET", key) for key in keys])


def _number(value: bytes) -> int:
    return int(value) if value.isdigit() else -1
