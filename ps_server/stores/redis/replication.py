"""Blocks of commands that are done when a replica has what they wrote."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from redis import Redis
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

_ASK_SECONDS = 10.0  # after which a primary may have won or lost its replica

Send = Callable[[Sequence[tuple[bytes | int, ...]]], list[object]]


class Replication:
    """Makes the primaries of a Redis Cluster wait for a replica.

    They answer before their replicas have what was written, and one that dies then takes it along. So every block of
    commands ends with WAIT, which costs nothing where nothing was written. A primary without a replica goes on alone.
    """

    def __init__(self, timeout_seconds: float) -> None:
        """`timeout_seconds` of one reply; a replica gets half of it."""
        self._wait: tuple[bytes | int, ...] = (b"WAIT", 1, max(1, int(500 * timeout_seconds)))  # milliseconds
        self._asked: dict[str, tuple[float, bool]] = {}  # by primary: when, and whether it had a replica

    def send(self, name: str, primary: Redis, commands: Sequence[tuple[bytes | int, ...]], send: Send) -> list[object]:
        """Replies to commands that `send` sends to the primary called `name`.

        Raises:
            RedisTimeoutError: the primary has a replica, which has not confirmed in time; or it is a primary no more.
        """
        asked, replicated = self._asked.get(name, (0.0, False))
        if time.monotonic() - asked > _ASK_SECONDS:
            replicated = self._ask(name, primary)
        if not replicated:
            return send(commands)
        *replies, confirmed = send([*commands, self._wait])
        if isinstance(confirmed, ResponseError):
            # One that hung runs what lies in its sockets before it learns that its replica has taken over.
            raise RedisTimeoutError(f"{name} has not waited for a replica: {confirmed}")
        if confirmed == 0 and self._ask(name, primary):
            raise RedisTimeoutError("no replica has confirmed a write in time")
        return replies

    def _ask(self, name: str, primary: Redis) -> bool:
        replicated = bool(primary.info("replication")["connected_slaves"])
        self._asked[name] = time.monotonic(), replicated
        return replicated
