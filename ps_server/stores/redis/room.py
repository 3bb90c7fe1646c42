"""The memory that a Redis has for more rows."""

from __future__ import annotations

from dataclasses import dataclass

from esd.ps_server.stores.redis.connection import RedisAccess, connect, translated_errors


@dataclass(frozen=True, slots=True)
class RedisRoom:
    """The memory of all servers of a Redis together.

    Attributes:
        address: host and port, for messages.
        free_bytes: that they may still take, at least 0.
        limited: whether every server has a `maxmemory`; the others are limited by their machines.
    """

    address: str
    free_bytes: int
    limited: bool


def redis_room(url: str, timeout_seconds: float, access: RedisAccess) -> RedisRoom:
    """Asks every server of a Redis for its memory and its limit. Nothing is written.

    Raises:
        InvalidArgument: the URL is malformed.
        Unavailable: Redis is out of reach.
        FailedPrecondition: Redis refuses our credentials or the command INFO.
    """
    redis = connect(url, timeout_seconds, access)
    try:
        with translated_errors(redis.address):
            memory = [server.info("memory") for server in redis.servers()]
    finally:
        redis.close()
    limits = [each["maxmemory"] or each["total_system_memory"] for each in memory]
    free = sum(max(0, limit - each["used_memory"]) for limit, each in zip(limits, memory, strict=True))
    return RedisRoom(redis.address, free, all(each["maxmemory"] for each in memory))
