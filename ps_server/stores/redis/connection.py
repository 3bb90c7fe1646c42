"""The connection to one Redis: opens it, sends blocks of commands, and turns its errors into ours.

`redis://` names a single server, `redis+cluster://` a Redis Cluster (`rediss` for TLS). Everything else in this package
uses either of them through `RedisConnection`.
"""

from __future__ import annotations

import logging
import re
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from redis import Redis, exceptions
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.connection import AbstractConnection
from redis.retry import Retry

from esd.ps_server.core.store import StoreLost
from esd.ps_server.stores.redis.replies import is_answer
from esd.services.domain.errors import (
    FailedPrecondition,
    InvalidArgument,
    StorageUnwritable,
    Unavailable,
)

_log = logging.getLogger(__name__)

Command = tuple[bytes | int, ...]  # the name in bytes: redis-py converts the replies to names that are str
Reply = Any  # its type depends on the command; the caller knows it

_READ_BYTES = 1 << 20  # larger reads from the socket make replies of a MiB about 15% faster
_MOVES = 3  # how often a command may follow a hash slot that moves to another node
_REPLICA_CHECK_SECONDS = 10.0  # a primary is asked this often whether it has a replica
# Permissions of the user whom the URL names, and how Redis reports a command that it does not permit.
_PERMISSIONS = (
    "~* +@hash +@string +@stream +@keyspace +@scripting +@transaction +@connection +info +time +wait +config|get"
)
_COMMAND = re.compile(r"run the '([^']+)' command")
_NOT_IN_SCRIPTS = "The user executing the script can't run this command"
_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"  # redis-py keeps only the text of this error

# Errors that redis-py's parser raises, besides its own, on bytes that are not the Redis protocol.
SENSELESS = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError)

# The server is up but cannot serve its data now: it is loading, changing its role, or moving slots.
_PASSING = (
    exceptions.AskError,
    exceptions.BusyLoadingError,
    exceptions.ClusterDownError,
    exceptions.MasterDownError,
    exceptions.MovedError,
    exceptions.ReadOnlyError,
    exceptions.TryAgainError,
)


@dataclass(frozen=True, slots=True)
class RedisAccess:
    """Secrets and certificates that come from files instead of the URL.

    Attributes:
        password: used if the URL has none.
        authority: file of the authorities that Redis's certificate is checked against (`rediss` only); None: the
            authorities that the system trusts.
        certificate: file of this server's certificate, for a Redis that requires one of its clients (`rediss` only).
        key: file of the certificate's private key.
    """

    password: str | None = field(default=None, repr=False)
    authority: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def options(self, *, encrypted: bool) -> dict[str, Any]:
        """Returns these secrets as keyword arguments of redis-py."""
        options: dict[str, Any] = {} if self.password is None else {"password": self.password}
        if encrypted:
            files = {"ssl_ca_certs": self.authority, "ssl_certfile": self.certificate, "ssl_keyfile": self.key}
            options |= {name: str(path) for name, path in files.items() if path is not None}
        return options


class RedisConnection(Protocol):
    """One Redis, which is a single server or a cluster.

    Attributes:
        address: host and port, for messages.
        spans_partitions: whether one command may name keys of several partitions.
    """

    address: str
    spans_partitions: bool

    @property
    def sockets_opened(self) -> int:
        """Number of sockets opened so far, to any server."""

    def execute(self, keys: Sequence[bytes], commands: Sequence[Command]) -> list[Reply]:
        """Sends a block of commands in as few round trips as there are servers involved.

        Args:
            keys: one key per command; the command goes to the server that holds it.
            commands: the commands to send.

        Returns:
            One reply per command, as Redis sent it.

        Raises:
            Unavailable: a server is out of reach or not ready.
            FailedPrecondition: a server refuses our credentials or a command, or its certificate is not trusted.
            StoreLost: another server has claimed the shard, or Redis has lost its data.
            StorageUnwritable: a server's memory is full, or it cannot save to its disk.
        """

    def servers(self) -> list[Redis]:
        """Returns a client for each server that holds data."""

    def close(self) -> None:
        """Closes all sockets."""


def connect(url: str, timeout_seconds: float, access: RedisAccess) -> RedisConnection:
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
        # redis-py retries nothing: only the caller knows how long a retry makes sense.
        "retry": Retry(NoBackoff(), 0),
        **access.options(encrypted=url.startswith("rediss")),
    }
    scheme, _, rest = url.partition("://")
    clustered = scheme.endswith("+cluster")
    address = address_of(url)
    plain = f"{scheme.removesuffix('+cluster')}://{rest}"
    sockets = _SocketCount()
    with translated_errors(address):
        if not clustered:
            return _SingleServer(address, Redis.from_url(url, redis_connect_func=sockets.greet, **options), sockets)
        cluster = RedisCluster.from_url(plain, redis_connect_func=sockets.count, **options)
        return _Cluster(address, cluster, sockets, timeout_seconds)


def address_of(url: str) -> str:
    """Returns host and port of the URL of a Redis, for messages. Raises InvalidArgument if the URL is malformed."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or 6379
    except ValueError:
        host = None
    # redis-py would read a name as database 0, and 1/2 as 12; a cluster has only database 0.
    databases = r"/?0?" if url.partition("://")[0].endswith("+cluster") else r"(/\d*)?"
    if not host or not re.fullmatch(databases, parts.path):
        raise InvalidArgument(
            "the store URL must be redis://[user:password@]host:port[/db], db being a number, or "
            "redis+cluster://host:port"
        )
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@contextmanager
def translated_errors(address: str) -> Iterator[None]:
    """Turns errors of Redis into ours; they name the server and the cause, and never contain a password.

    Raises:
        Unavailable: Redis is out of reach or not ready, or answers with bytes that are not an answer.
        FailedPrecondition: Redis refuses our credentials or a command, or its certificate is not trusted.
        StoreLost: another server has claimed the shard, or Redis has lost its data.
        StorageUnwritable: the memory of Redis is full, or Redis cannot save to its disk.
    """
    try:
        yield
    except exceptions.NoPermissionError as error:
        raise _not_permitted(address, str(error)) from error
    except exceptions.AuthenticationError as error:
        raise FailedPrecondition(
            f"Redis at {address} refuses our user or password; see store and store_password_file (ESD_PS_STORE, "
            "--store of a local run; ESD_PS_STORE_PASSWORD_FILE)"
        ) from error
    except exceptions.InvalidResponse as error:
        # An error of redis-py's parser quotes the received bytes, which may be anything: they are not repeated.
        what = f"to {error.command}" if isinstance(error, _WrongAnswer) else "and cannot be parsed"
        raise Unavailable(
            f"Redis at {address} sends an answer that no Redis would send, {what}. If this continues, check that the "
            "program at this address is a Redis, and any proxy on the way to it"
        ) from error
    except exceptions.OutOfMemoryError as error:
        raise StorageUnwritable(f"Redis at {address} is full; raise its maxmemory or add nodes") from error
    except _PASSING as error:
        raise Unavailable(f"Redis at {address} is not ready: {error}") from error
    except exceptions.ResponseError as error:
        raise _refusal(address, error) from error
    except (exceptions.ConnectionError, exceptions.TimeoutError, exceptions.RedisClusterException, OSError) as error:
        if _UNTRUSTED in str(error):
            raise FailedPrecondition(
                f"the certificate of Redis at {address} is not one that store_tls_ca (ESD_PS_STORE_TLS_CA) vouches "
                f"for: {error}"
            ) from error
        raise Unavailable(f"Redis at {address} is out of reach: {error}") from error


def lost_data(address: str, sign: str) -> StoreLost:
    """Returns the error for a Redis that has lost data since this server started, with its sign and advice."""
    return StoreLost(
        f"Redis at {address} has lost its data, or is another one: {sign}. Restore its data and start it again; "
        "or start the parameter servers again to resume from the last checkpoint that it holds; or begin anew: empty "
        "it, and start the parameter servers again"
    )


def _not_permitted(address: str, refused: str) -> FailedPrecondition:
    """Returns our error for a command or a key that Redis does not permit to our user, with the needed permissions."""
    named = _COMMAND.search(refused)
    what = f"the command {named[1]}" if named else "a command of our scripts"
    if "key" in refused or "channel" in refused:
        what = "our keys"
    return FailedPrecondition(
        f"Redis at {address} does not permit {what} to the user that the store names (ESD_PS_STORE, --store of a local "
        f"run): the user needs `{_PERMISSIONS}` (ACL SETUSER)"
    )


def _refusal(address: str, error: exceptions.ResponseError) -> Exception:
    """Returns our error for an error reply of Redis or of one of our scripts."""
    code = str(error).partition(" ")[0]
    if str(error).startswith(_NOT_IN_SCRIPTS):
        return _not_permitted(address, str(error))
    if code in ("NOREPLICAS", "BUSY"):  # too few replicas to accept writes; or a long script of another client runs
        return Unavailable(f"Redis at {address} is not ready: {error}")
    if code == "ESDTAKEN":
        return StoreLost(
            f"this parameter server has lost its shard of Redis at {address}: another one has taken over while this "
            "one did not renew its claim. It reads and writes nothing any more; stop it"
        )
    if code == "ESDGONE":
        return lost_data(address, "the claim that was left in it is gone")
    if code == "WRONGTYPE":
        return FailedPrecondition(
            f"a key of ours in Redis at {address} holds a value of another type: another program has written to this "
            "database. Restore its data, or begin anew with an empty database, and keep other programs out of it"
        )
    if "DB index is out of range" in str(error):
        return FailedPrecondition(
            f"Redis at {address} has no database of the number that the store names (ESD_PS_STORE, --store of a "
            "local run); `databases` of its configuration says how many it has, 16 by default"
        )
    if code == "MISCONF":
        return StorageUnwritable(
            f"Redis at {address} cannot save to its disk and accepts no writes: {error}. Make room there"
        )
    _log.error("Redis at %s refuses a command: %.200r", address, str(error))
    return FailedPrecondition(
        f"Redis at {address} refuses a command of this server with the code {code[:40]!r}; the log of this server "
        "has the full text. Is it a Redis of a version that the documentation names?"
    )


class _WrongAnswer(exceptions.InvalidResponse):
    """An answer whose form does not fit its command."""

    def __init__(self, command: Command) -> None:
        super().__init__()
        self.command = str(command[0], "ascii") if isinstance(command[0], bytes) else str(command[0])


class _SocketCount:
    """Counts the sockets that redis-py opens."""

    def __init__(self) -> None:
        self.opened = 0

    def count(self, _: AbstractConnection) -> None:
        """Counts a socket; redis-py itself sends the greeting."""
        self.opened += 1

    def greet(self, connection: AbstractConnection) -> None:
        """Counts a socket and sends the greeting, which redis-py leaves to this hook on a single server."""
        connection.on_connect()  # type: ignore[no-untyped-call]
        self.opened += 1


class _SingleServer:
    """A RedisConnection to one server."""

    spans_partitions = True

    def __init__(self, address: str, client: Redis, sockets: _SocketCount) -> None:
        self.address = address
        self._client = client
        self._sockets = sockets

    @property
    def sockets_opened(self) -> int:
        return self._sockets.opened

    def execute(self, keys: Sequence[bytes], commands: Sequence[Command]) -> list[Reply]:
        del keys  # the one server holds all keys
        with translated_errors(self.address):
            return _raised(_pipelined(self._client, commands))

    def servers(self) -> list[Redis]:
        return [self._client]

    def close(self) -> None:
        self._client.close()


class _Cluster:
    """A RedisConnection to a Redis Cluster. An acknowledged write is on a replica, too, if there is one."""

    spans_partitions = False

    def __init__(self, address: str, client: RedisCluster, sockets: _SocketCount, timeout_seconds: float) -> None:
        self.address = address
        self._client = client
        self._sockets = sockets
        self._replicas = _Replicas(timeout_seconds)

    @property
    def sockets_opened(self) -> int:
        return self._sockets.opened

    def execute(self, keys: Sequence[bytes], commands: Sequence[Command]) -> list[Reply]:
        with translated_errors(self.address):
            replies: list[Reply] = [None] * len(commands)
            left = list(range(len(commands)))
            for _ in range(_MOVES):
                self._send(keys, commands, left, replies)
                left = [i for i in left if isinstance(replies[i], exceptions.MovedError)]
                if not left:
                    break
                self._client.nodes_manager.initialize()
            return _raised(replies)

    def servers(self) -> list[Redis]:
        """Returns a client for each primary."""
        with translated_errors(self.address):
            primaries = self._client.get_primaries()  # type: ignore[no-untyped-call]
            return [self._client.get_redis_connection(node) for node in primaries]

    def close(self) -> None:
        self._client.close()

    def _send(self, keys: Sequence[bytes], commands: Sequence[Command], which: list[int], replies: list[Reply]) -> None:
        """Sends the commands at the positions `which` and writes their replies into `replies`."""
        by_node = defaultdict(list)
        for i in which:
            by_node[self._client.get_node_from_key(keys[i])].append(i)  # type: ignore[no-untyped-call]
        try:
            for node, indices in by_node.items():
                primary = self._client.get_redis_connection(node)
                answered = self._replicas.send(node.name, primary, [commands[i] for i in indices])
                for i, reply in zip(indices, answered, strict=True):
                    replies[i] = reply
        except (exceptions.ConnectionError, exceptions.TimeoutError):
            self._client.nodes_manager.initialize()  # a replica may have taken over: the next try must find it
            raise


class _Replicas:
    """Makes the primaries of a Redis Cluster wait until a replica has confirmed each write.

    A primary answers before its replicas have a write, and if it dies then, the write is lost. So every block of
    commands ends with WAIT, which costs nothing if nothing was written. A primary without a replica does not wait.
    """

    def __init__(self, timeout_seconds: float) -> None:
        """Grants a replica half of the `timeout_seconds` of one reply."""
        self._wait: Command = (b"WAIT", 1, max(1, int(500 * timeout_seconds)))  # milliseconds
        self._asked: dict[
            str, tuple[float, bool]
        ] = {}  # by primary: time of the last check, and whether it had a replica

    def send(self, name: str, primary: Redis, commands: Sequence[Command]) -> list[Reply]:
        """Sends commands to the primary called `name`, and returns their replies.

        Raises:
            exceptions.TimeoutError: the primary has a replica that did not confirm in time, or is no primary any more.
        """
        asked, replicated = self._asked.get(name, (0.0, False))
        if time.monotonic() - asked > _REPLICA_CHECK_SECONDS:
            replicated = self._has_replica(name, primary)
        if not replicated:
            return _pipelined(primary, commands)
        *replies, confirmed = _pipelined(primary, [*commands, self._wait])
        if isinstance(confirmed, exceptions.ResponseError):
            # A primary that hung first runs the commands in its sockets, then learns that a replica has taken over.
            raise exceptions.TimeoutError(f"{name} has not waited for a replica: {confirmed}")
        if confirmed == 0 and self._has_replica(name, primary):
            raise exceptions.TimeoutError("no replica has confirmed a write in time")
        return replies

    def _has_replica(self, name: str, primary: Redis) -> bool:
        replicated = bool(primary.info("replication")["connected_slaves"])
        self._asked[name] = time.monotonic(), replicated
        return replicated


def ask(client: Redis, command: Command) -> Reply:
    """Returns one server's answer to a command; call it inside `translated_errors`."""
    return _raised(_pipelined(client, [command]))[0]


def _pipelined(client: Redis, commands: Sequence[Command]) -> list[Reply]:
    """Returns a reply per command, an exception object for a failed one; redis-py's own would quote the command's data.

    Raises:
        exceptions.InvalidResponse: the received bytes are not a reply, or not one that fits its command. No reply of
            the block is used, and the idle sockets are closed, so that later replies cannot be mixed up.
    """
    with client.pipeline(transaction=False) as pipeline:
        for command in commands:
            pipeline.execute_command(*command)  # type: ignore[no-untyped-call]
        try:
            replies: list[Reply] = pipeline.execute(raise_on_error=False)
        except SENSELESS as error:
            raise exceptions.InvalidResponse from error
    for command, reply in zip(commands, replies, strict=True):
        if not isinstance(reply, Exception) and not is_answer(command, reply):
            client.connection_pool.disconnect(inuse_connections=False)
            raise _WrongAnswer(command)
    return replies


def _raised(replies: list[Reply]) -> list[Reply]:
    """Returns the replies, or raises the first exception among them."""
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return replies
