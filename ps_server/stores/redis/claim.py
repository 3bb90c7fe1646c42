"""The right to write to a shard in Redis, which one parameter server has at a time.

A server claims its shard before it writes anything, and gets a token. Every script that writes compares this token with
the one in Redis, in the same atomic step (`Claim.script`): the fence. So a server that was stopped, cut off or frozen,
and resumes after another server has taken over, can write nothing. The claim is also a sign of life: its server renews
it every two seconds, and no other server takes the shard over until `LIFETIME_SECONDS` after the last renewal. Only the
fence makes the store safe; the lifetime keeps a second server, started by mistake, from ending the work of the first.

If the claiming process ran in this process table and is gone from it, it is surely dead, and its claim need not expire.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from esd.ps_server.core.shard import Shard
from esd.ps_server.stores.processes import is_gone, this_process
from esd.ps_server.stores.redis import scripts
from esd.ps_server.stores.redis.connection import Command, RedisConnection, Reply
from esd.services.domain.errors import FailedPrecondition

_log = logging.getLogger(__name__)

CLAIMS = b"esd:servers"
CHANGES = b"esd:claims"  # on a single server: the number of claims so far, which renewals do not change
LIFETIME_SECONDS = 10.0
RENEWAL_SECONDS = 2.0  # between the renewals of a claim
_LOOK_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class _Holder:
    """The present claim that is in the way of ours.

    Attributes:
        server: `parameter server <shard> of <count>`, for messages.
        token: identifies the claim.
        until: time by Redis' clock, in milliseconds, at which the claim expires.
        seconds: the time from now until then.
        process: the claiming process, as `this_process` describes it.
    """

    server: str
    token: bytes
    until: int
    seconds: float
    process: bytes

    @classmethod
    def of(cls, reply: Reply) -> Self:
        shard, count, token, until, milliseconds, process = reply
        server = f"parameter server {shard.decode()} of {count.decode()}"
        return cls(server, token, int(until), milliseconds / 1000, process)


class Claim:
    """One server's claim of one shard."""

    def __init__(self, redis: RedisConnection, shard: Shard) -> None:
        """Does not claim yet."""
        self._redis = redis
        self._shard = shard
        self._token = b""  # equals no token in Redis

    def take(self, *, exclusive: bool) -> None:
        """Claims the shard. Waits for up to `LIFETIME_SECONDS` to learn whether its holder still renews it.

        Args:
            exclusive: raise at once instead of waiting.

        Raises:
            FailedPrecondition: another server holds the shard, or servers of another number of shards serve the tables.
        """
        dead: set[bytes] = set()
        first: _Holder | None = None
        while (holder := self._try(dead)) is not None:
            if is_gone(holder.process):
                dead.add(holder.token)
                continue
            # A claim that expires later than at the first look was renewed since: its server lives.
            if exclusive or (first is not None and holder.until > first.until):
                raise FailedPrecondition(
                    f"{holder.server} runs on Redis at {self._redis.address}, or last renewed its claim less than "
                    f"{LIFETIME_SECONDS:.0f} s ago; stop it first, or use another Redis or another of its databases"
                )
            if first is None:
                first = holder
                _log.warning(
                    "%s renewed its claim on Redis at %s a moment ago; waiting for up to %.0f s for its end",
                    holder.server,
                    self._redis.address,
                    holder.seconds,
                )
            time.sleep(min(_LOOK_SECONDS, holder.seconds))

    def renew(self) -> None:
        """Renews the claim. Raises StoreLost if another server has taken over."""
        self._redis.execute([CLAIMS], [self._own(scripts.RENEW_CLAIM, _milliseconds())])

    def confirmation(self) -> Command:
        """Returns the command, with the key CLAIMS, that fails with StoreLost if another server has taken over."""
        return self._own(scripts.CONFIRM)

    def reading(self) -> Command:
        """Returns the command that reads the token of the shard's claim."""
        return (b"HGET", CLAIMS, self._shard.index)

    def is_own(self, token: Reply) -> bool:
        """Returns whether the answer to `reading` says that the claim is in force."""
        return bool(self._token) and token == self._token

    def leave(self) -> None:
        """Gives the claim back. Raises StoreLost if another server has taken over."""
        if self._token:
            self._redis.execute([CLAIMS], [self._own(scripts.LEAVE)])
            self._token = b""

    def fence(self, keys: Sequence[bytes], *, alone: bool) -> None:
        """Makes the claim known to the scripts that write to these keys, as a fence in the hash slot of each key.

        A single server needs no fence: its scripts can read the claim itself.

        Args:
            keys: the keys.
            alone: whether servers of other shards must not write there.

        Raises:
            StoreLost: a later claim is known there.
        """
        if not self._redis.spans_partitions:
            fences = [_fence_beside(key) for key in keys]
            arguments = (self._shard.index, self._token, int(alone))
            self._redis.execute(fences, [(b"EVAL", scripts.SET_FENCE, 1, fence, *arguments) for fence in fences])

    def script(self, script: bytes, keys: Sequence[bytes], *arguments: bytes | int) -> Command:
        """Returns the command of a script that begins with scripts.FENCED; `keys`, in one slot, become KEYS[2...].

        The arguments become ARGV[3...]; KEYS[1], ARGV[1] and ARGV[2] are the fence, the shard and the token.
        """
        fence = CLAIMS if self._redis.spans_partitions else _fence_beside(keys[0])
        return (b"EVAL", script, 1 + len(keys), fence, *keys, self._shard.index, self._token, *arguments)

    def write(self, name: bytes, key: bytes, *arguments: bytes | int) -> Command:
        """Returns the fenced command that writes to one key."""
        return self.script(scripts.WRITE, [key], name, *arguments)

    def _try(self, dead: set[bytes]) -> _Holder | None:
        """Tries to claim the shard; returns the claim in the way, or None if the shard is ours now."""
        arguments = (
            self._shard.index,
            self._shard.count,
            secrets.token_hex(8).encode(),
            _milliseconds(),
            this_process(),
        )
        keys = (CLAIMS, CHANGES) if self._redis.spans_partitions else (CLAIMS,)
        command: Command = (b"EVAL", scripts.CLAIM, len(keys), *keys, *arguments, *sorted(dead | {self._token}))
        (reply,) = self._redis.execute([CLAIMS], [command])
        if isinstance(reply, list):
            return _Holder.of(reply)
        self._token = reply
        return None

    def _own(self, script: bytes, *arguments: bytes | int) -> Command:
        return (b"EVAL", script, 1, CLAIMS, self._shard.index, self._token, *arguments)


def _fence_beside(key: bytes) -> bytes:
    """Returns the key of the fence in the hash slot of a key."""
    _, brace, rest = key.partition(b"{")
    return b"f:{" + (rest.partition(b"}")[0] if brace else key) + b"}"


def _milliseconds() -> int:
    return int(1000 * LIFETIME_SECONDS)
