"""Rows in Redis: one server or a Redis Cluster. The only package that imports redis."""

from ps_server.stores.redis.access import RedisAccess
from ps_server.stores.redis.store import RedisStore

__all__ = ["RedisAccess", "RedisStore"]
