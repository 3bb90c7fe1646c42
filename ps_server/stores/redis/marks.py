"""Marks that are left in Redis, and looked for after every new connection: a Redis without them has lost its data."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence

from redis import Redis

from ps_server.stores.redis.routes import Command, Reply, Route
from services.domain.errors import FailedPrecondition

_CLUSTER_MARKS = 128  # enough for each of a few dozen nodes to have one
_LEAVING_SECONDS = 2.0
_LOOK_SECONDS = 0.05


class MarkedRoute:
    """A Route that answers only as long as Redis is the one that the marks were left in.

    A Redis that was started again without its data, or another one at its address, would take pushes and answer pulls
    as if nothing had ever been stored. It is only reached by new connections, so nothing is asked as long as the old
    ones hold; what was sent over a new one is not answered before the marks were seen.
    """

    def __init__(self, route: Route) -> None:
        """Leaves the marks, unless they are there.

        Raises:
            Unavailable: Redis is out of reach.
            FailedPrecondition: a node of a cluster has lost its own.
        """
        self.address = route.address
        self.spans_partitions = route.spans_partitions
        self._route = route
        self._keys = [b"esd:mark:%d" % number for number in range(1 if route.spans_partitions else _CLUSTER_MARKS)]
        self._seen = route.connections
        self._check_whole()
        token = secrets.token_hex(8).encode()
        route.execute(self._keys, [(b"SET", key, token, b"NX") for key in self._keys])
        self._marks = self._read()

    @property
    def connections(self) -> int:
        """Opened so far."""
        return self._route.connections

    def execute(self, keys: Sequence[bytes], commands: Sequence[Command]) -> list[Reply]:
        """See Route. Raises FailedPrecondition when Redis has lost its data."""
        replies = self._route.execute(keys, commands)
        if self._route.connections != self._seen:
            connections = self._route.connections
            if self._read() != self._marks:
                raise self._lost()
            self._seen = connections
        return replies

    def servers(self) -> list[Redis]:
        """See Route."""
        return self._route.servers()

    def ping(self) -> None:
        """Raises Unavailable while a server is out of reach, FailedPrecondition when one has lost its data."""
        self.execute(self._keys, [(b"EXISTS", key) for key in self._keys])

    def close(self) -> None:
        """Closes all connections."""
        self._route.close()

    def _check_whole(self) -> None:
        """All marks are there, or none. Another server may be leaving them just now, which does not take long."""
        deadline = time.monotonic() + _LEAVING_SECONDS
        while any(there := self._read()) and not all(there):
            if time.monotonic() > deadline:
                raise self._lost()
            time.sleep(_LOOK_SECONDS)

    def _read(self) -> list[Reply]:
        return self._route.execute(self._keys, [(b"GET", key) for key in self._keys])

    def _lost(self) -> FailedPrecondition:
        return FailedPrecondition(
            f"Redis at {self.address} has lost its data, or is another one: the marks that were left in it are gone. "
            "Give it its data back and start it again; or begin anew: empty it, and start the parameter servers again"
        )
