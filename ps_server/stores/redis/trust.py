"""What must be true of a Redis before, and as long as, rows are trusted to it.

Before: no server may drop rows when its memory is full (`check_configuration`). As long as: it must be the Redis that
this server has begun with, and not one that was started again without its data (`MarkedConnection`).
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Sequence

from redis import Redis, exceptions

from ps_server.stores.redis.connection import Command, RedisConnection, Reply, lost_data, translated_errors
from services.domain.errors import FailedPrecondition

_log = logging.getLogger(__name__)

_CLUSTER_MARKS = 128  # enough for each of a few dozen nodes to have one
_LEAVING_SECONDS = 2.0  # longest that another server may take to leave its marks
_LOOK_SECONDS = 0.05


def check_configuration(redis: RedisConnection) -> None:
    """Looks at the configuration of every server, as far as it may be read.

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


class MarkedConnection:
    """A RedisConnection that answers only as long as Redis is the one in which this server has left its marks.

    A Redis that was started again without its data, or another one at its address, would take pushes and answer pulls
    as if nothing had ever been stored. Marks are random values, one or more on every node, which such a Redis lacks.
    It is reached by new sockets only, so nothing is asked as long as the old ones hold; what was sent over a new one is
    not answered before the marks were seen.
    """

    def __init__(self, redis: RedisConnection) -> None:
        """Leaves the marks, unless they are there.

        Raises:
            Unavailable: Redis is out of reach.
            FailedPrecondition: a node of a cluster has lost its marks.
        """
        self.address = redis.address
        self.spans_partitions = redis.spans_partitions
        self._redis = redis
        self._keys = [b"esd:mark:%d" % number for number in range(1 if redis.spans_partitions else _CLUSTER_MARKS)]
        self._sockets_checked = redis.sockets_opened
        self._check_whole()
        token = secrets.token_hex(8).encode()
        redis.execute(self._keys, [(b"SET", key, token, b"NX") for key in self._keys])
        self._marks = self._read_marks()

    @property
    def sockets_opened(self) -> int:
        """How many sockets have been opened so far, to any server."""
        return self._redis.sockets_opened

    def execute(self, keys: Sequence[bytes], commands: Sequence[Command]) -> list[Reply]:
        """Sends commands as RedisConnection does. Raises FailedPrecondition, too, when Redis has lost its data."""
        replies = self._redis.execute(keys, commands)
        if self._redis.sockets_opened != self._sockets_checked:
            opened = self._redis.sockets_opened
            if self._read_marks() != self._marks:
                raise lost_data(self.address)
            self._sockets_checked = opened
        return replies

    def servers(self) -> list[Redis]:
        """Returns a client for each server that holds data."""
        return self._redis.servers()

    def ping(self) -> None:
        """Raises Unavailable while a server is out of reach, FailedPrecondition when one has lost its data."""
        self.execute(self._keys, [(b"EXISTS", key) for key in self._keys])

    def close(self) -> None:
        """Closes all sockets."""
        self._redis.close()

    def _check_whole(self) -> None:
        """All marks are there, or none. Another server may be leaving them just now, which does not take long."""
        deadline = time.monotonic() + _LEAVING_SECONDS
        while any(there := self._read_marks()) and not all(there):
            if time.monotonic() > deadline:
                raise lost_data(self.address)
            time.sleep(_LOOK_SECONDS)

    def _read_marks(self) -> list[Reply]:
        return self._redis.execute(self._keys, [(b"GET", key) for key in self._keys])
