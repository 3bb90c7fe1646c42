"""Sends blocks of commands to the Redis servers that hold their keys."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol
from urllib.parse import urlsplit

from redis import Redis
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.connection import AbstractConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import MovedError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from ps_server.stores.redis.access import RedisAccess
from ps_server.stores.redis.errors import translated
from ps_server.stores.redis.replication import Replication
from services.domain.errors import InvalidArgument

Command = tuple[bytes | int, ...]  # its name in bytes: redis-py recasts the replies to names that are str
Reply = Any  # what a command answers is known where the command is known

_READ_BYTES = 1 << 20  # larger reads from the socket make replies of a MiB about 15% faster
_MOVES = 3  # how often a command may follow a slot that moves


class Route(Protocol):
    """The way to one Redis, of one server or many."""

    address: str
    spans_partitions: bool  # whether one command may name keys of several partitions

    @property
    def connections(self) -> int:
        """Opened so far, to any server."""

    def execute(self, keys: Sequence[bytes], commands: Sequence[Command]) -> list[Reply]:
        """Replies to commands, as Redis sent them, each command sent to the server of its key in few round trips."""

    def servers(self) -> list[Redis]:
        """A client for each server that holds data."""

    def close(self) -> None:
        """Closes all connections."""


def open_route(url: str, timeout_seconds: float, access: RedisAccess) -> Route:
    """Connects to `redis://` or `redis+cluster://` (`rediss` for TLS).

    Raises:
        InvalidArgument: the URL is malformed.
        Unavailable: Redis is out of reach.
    """
    options: dict[str, Any] = {
        "socket_timeout": timeout_seconds,
        "socket_connect_timeout": timeout_seconds,
        "socket_read_size": _READ_BYTES,
        "protocol": 2,
        # Not by the client: a repetition is the business of who knows how long waiting makes sense.
        "retry": Retry(NoBackoff(), 0),
        **access.options(encrypted=url.startswith("rediss")),
    }
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or 6379
    except ValueError:
        host = None
    if not host:
        raise InvalidArgument(
            "the store URL must be redis://[user:password@]host:port[/db] or redis+cluster://host:port"
        )
    address = f"{host}:{port}"
    plain = url.replace("+cluster", "", 1)
    opened = Opened()
    with translated(address):
        if plain == url:
            return SingleRoute(address, Redis.from_url(url, redis_connect_func=opened.greet, **options), opened)
        return ClusterRoute(
            address, RedisCluster.from_url(plain, redis_connect_func=opened.count, **options), opened, timeout_seconds
        )


class Opened:
    """Counts connections as they are opened."""

    def __init__(self) -> None:
        self.number = 0

    def count(self, _: AbstractConnection) -> None:
        """One more, which the caller has greeted."""
        self.number += 1

    def greet(self, connection: AbstractConnection) -> None:
        """One more; does what redis-py does with a new one that nobody else wants to greet."""
        connection.on_connect()  # type: ignore[no-untyped-call]
        self.number += 1


class SingleRoute:
    """One server."""

    spans_partitions = True

    def __init__(self, address: str, client: Redis, opened: Opened) -> None:
        self.address = address
        self._client = client
        self._opened = opened

    @property
    def connections(self) -> int:
        """Opened so far."""
        return self._opened.number

    def execute(self, keys: Sequence[bytes], commands: Sequence[Command]) -> list[Reply]:
        """See Route."""
        del keys  # all are here
        with translated(self.address):
            return _checked(_pipelined(self._client, commands))

    def servers(self) -> list[Redis]:
        """The one."""
        return [self._client]

    def close(self) -> None:
        """Closes all connections."""
        self._client.close()


class ClusterRoute:
    """A Redis Cluster. What it has answered, a replica has, too, if there is one."""

    spans_partitions = False

    def __init__(self, address: str, client: RedisCluster, opened: Opened, timeout_seconds: float) -> None:
        self.address = address
        self._client = client
        self._opened = opened
        self._replication = Replication(timeout_seconds)

    @property
    def connections(self) -> int:
        """Opened so far, to any node."""
        return self._opened.number

    def execute(self, keys: Sequence[bytes], commands: Sequence[Command]) -> list[Reply]:
        """See Route; follows slots that have moved."""
        with translated(self.address):
            replies: list[Reply] = [None] * len(commands)
            left = list(range(len(commands)))
            for _ in range(_MOVES):
                self._send(keys, commands, left, replies)
                left = [i for i in left if isinstance(replies[i], MovedError)]
                if not left:
                    break
                self._client.nodes_manager.initialize()
            return _checked(replies)

    def servers(self) -> list[Redis]:
        """The primaries."""
        with translated(self.address):
            primaries = self._client.get_primaries()  # type: ignore[no-untyped-call]
            return [self._client.get_redis_connection(node) for node in primaries]

    def close(self) -> None:
        """Closes all connections."""
        self._client.close()

    def _send(self, keys: Sequence[bytes], commands: Sequence[Command], which: list[int], replies: list[Reply]) -> None:
        by_node = defaultdict(list)
        for i in which:
            by_node[self._client.get_node_from_key(keys[i])].append(i)  # type: ignore[no-untyped-call]
        try:
            for node, indices in by_node.items():
                client = self._client.get_redis_connection(node)
                block = [commands[i] for i in indices]
                got = self._replication.send(node.name, client, block, partial(_pipelined, client))
                for i, reply in zip(indices, got, strict=True):
                    replies[i] = reply
        except (RedisConnectionError, RedisTimeoutError):
            self._client.nodes_manager.initialize()  # a replica may have taken over: find it for the next try
            raise


def _pipelined(client: Redis, commands: Sequence[Command]) -> list[Reply]:
    """One reply per command; an exception where it failed, which redis-py would raise with the command's data in it."""
    with client.pipeline(transaction=False) as pipeline:
        for command in commands:
            pipeline.execute_command(*command)  # type: ignore[no-untyped-call]
        return pipeline.execute(raise_on_error=False)


def _checked(replies: list[Reply]) -> list[Reply]:
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return replies
