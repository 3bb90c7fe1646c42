"""Transactions that Redis runs only while no shard was claimed since the sender has seen its own claim.

Redis takes half as long for plain commands as for a script that writes the same rows, but plain commands cannot compare
a token. So a connection watches the number of claims, then reads the token of its shard, and if that is our own, a
transaction may follow: Redis refuses to run it when a server has claimed any shard meanwhile. The caller then sends a
script, which finds out whose the shard is.

The answer to a transaction may be lost while its commands are still on their way. `settle` changes the number of
claims, so that Redis runs none of these any more; every other write to the same rows calls it first.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from redis import exceptions
from redis.connection import AbstractConnection

from esd.ps_server.stores.redis.claim import CHANGES, CLAIMS, Claim
from esd.ps_server.stores.redis.connection import (
    SENSELESS,
    Command,
    RedisConnection,
    Reply,
    lost_data,
    translated_errors,
)
from esd.ps_server.stores.redis.replies import is_answer

_CENTURY_SECONDS = 100 * 365 * 24 * 3600
_AWAY = (exceptions.ConnectionError, exceptions.TimeoutError, exceptions.InvalidResponse, OSError)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answers to a transaction and to the commands after it.

    Attributes:
        replies: to the commands of the transaction; None if it was not run.
        then: to the others.
    """

    replies: list[Reply] | None
    then: list[Reply]


class WatchedTransactions:
    """Transactions on a single server. Thread-safe.

    Attributes:
        permitted: whether Redis permits them to our user, as far as is known.
    """

    def __init__(self, redis: RedisConnection, claim: Claim) -> None:
        self._redis = redis
        self._claim = claim
        self._idle: list[AbstractConnection] = []  # which watch, while our claim is in force
        self._lock = threading.Lock()
        self.permitted = True
        self._lost = self._settled = 0  # transactions without an answer, and those of them that cannot run any more

    def run(self, packed: Sequence[bytes], count: int, then: Sequence[Command]) -> Outcome | None:
        """Runs a transaction, and other commands after it in the same round trip.

        Args:
            packed: its commands, in the protocol of Redis.
            count: their number.
            then: commands that are run even if the transaction is not.

        Returns:
            The outcome, or None if nothing is known of it, or nothing was sent.

        Raises:
            EsdError: Redis refuses a command.
        """
        connection = self._take()
        if connection is None:
            return None
        try:
            _send(connection, [pack([(b"MULTI",)]), *packed, pack([(b"EXEC",), *then, *self._watch])])
            _expect(connection, b"+OK\r\n" + count * b"+QUEUED\r\n")
            (executed,) = _replies(connection, 1)
            after = _replies(connection, len(then))
            watched = _replies(connection, len(self._watch))
            _check(zip(then, after, strict=True), executed, count)
        except _AWAY:
            connection.disconnect()  # type: ignore[no-untyped-call]
            with self._lock:
                self._lost += 1
            return None
        if self._watches(connection, watched):
            with self._lock:
                self._idle.append(connection)
        if isinstance(executed, exceptions.ResponseError):
            return None  # scripts fail for the same reason, which their errors name
        with translated_errors(self._redis.address):
            for reply in (*(executed or ()), *after):
                if isinstance(reply, Exception):
                    raise reply
        return Outcome(executed, after)

    def settle(self) -> None:
        """Makes sure that no transaction whose answer was lost runs any more. Raises as RedisConnection.execute."""
        lost = self._lost
        if lost > self._settled:
            # As good as a change, and permitted where Redis is full.
            (found,) = self._redis.execute([CHANGES], [(b"EXPIRE", CHANGES, _CENTURY_SECONDS)])
            if not found:
                raise lost_data(self._redis.address, "the number of claims is gone")
            with self._lock:
                self._settled = max(self._settled, lost)

    def close(self) -> None:
        """Closes the idle connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.disconnect()  # type: ignore[no-untyped-call]

    def _take(self) -> AbstractConnection | None:
        """Returns a connection that watches, of our claim in force; None if there is none."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
        if not self.permitted:
            return None
        connection = self._opened()
        try:
            _send(connection, [pack(self._watch)])
            watched = _replies(connection, len(self._watch))
        except _AWAY:
            connection.disconnect()  # type: ignore[no-untyped-call]
            return None
        self.permitted = not isinstance(watched[0], exceptions.NoPermissionError)
        return connection if self._watches(connection, watched) else None

    def _opened(self) -> AbstractConnection:
        """Opens a connection that redis-py does not know, so that it is not opened again without a watch."""
        confirm = [self._claim.confirmation()]
        self._redis.execute([CLAIMS], confirm)
        (client,) = self._redis.servers()
        pool = client.connection_pool
        with translated_errors(self._redis.address):
            connection: AbstractConnection = pool.connection_class(**pool.connection_kwargs)
            connection.connect()  # type: ignore[no-untyped-call]
        self._redis.execute([CLAIMS], confirm)  # compares the marks of Redis, because a new socket was opened
        return connection

    @property
    def _watch(self) -> list[Command]:
        """The commands with which a connection begins to watch. The claim is read last: it is older than no change."""
        return [(b"WATCH", CHANGES), self._claim.reading()]

    def _watches(self, connection: AbstractConnection, watched: list[Reply]) -> bool:
        """Returns whether the answers to `_watch` permit a transaction; else closes the connection."""
        if watched[0] == b"OK" and self._claim.is_own(watched[1]):
            return True
        connection.disconnect()  # type: ignore[no-untyped-call]
        return False


def pack(commands: Sequence[Command]) -> bytes:
    """Returns commands in the protocol of Redis."""
    parts = []
    for command in commands:
        parts.append(b"*%d\r\n" % len(command))
        for word in command:
            text = b"%d" % word if isinstance(word, int) else word
            parts.append(b"$%d\r\n%b\r\n" % (len(text), text))
    return b"".join(parts)


def _send(connection: AbstractConnection, packed: Sequence[bytes]) -> None:
    connection.send_packed_command(packed)  # type: ignore[no-untyped-call]


def _expect(connection: AbstractConnection, answers: bytes) -> None:
    """Reads the answers to the commands before EXEC. Raises InvalidResponse if they are others.

    Redis sends each of them when it has read its command, some at a time. To wake up for each part takes longer than to
    read all of them, so the first read waits for their number of bytes, which no error falls short of. Under TLS the
    socket's bytes are others.
    """
    opened: socket.socket | None = connection._sock  # noqa: SLF001 - redis-py has no other way to the socket
    if opened is None:
        raise exceptions.ConnectionError
    received, size = memoryview(bytearray(len(answers))), 0
    if not isinstance(opened, ssl.SSLSocket):
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, len(answers))
    while size < len(answers):
        more = opened.recv_into(received[size:])
        if not more:
            raise exceptions.ConnectionError
        size += more
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
    if received != answers:
        raise exceptions.InvalidResponse


def _replies(connection: AbstractConnection, count: int) -> list[Reply]:
    replies: list[Reply] = []
    for _ in range(count):
        try:
            replies.append(connection.read_response())
        except exceptions.ResponseError as error:
            replies.append(error)
        except SENSELESS as error:
            raise exceptions.InvalidResponse from error
    return replies


def _check(answered: Iterable[tuple[Command, Reply]], executed: Reply, count: int) -> None:
    """Raises InvalidResponse if the answers to commands, or to EXEC of `count` commands, have another form."""
    refusal = exceptions.ResponseError
    counts = isinstance(executed, list) and len(executed) == count
    fits = (counts and all(isinstance(each, int | refusal) for each in executed)) or executed is None
    fits = (fits or isinstance(executed, refusal)) and all(
        isinstance(reply, refusal) or is_answer(command, reply) for command, reply in answered
    )
    if not fits:
        raise exceptions.InvalidResponse
