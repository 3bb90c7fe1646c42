"""Opens the store that a URL names."""

from __future__ import annotations

from pathlib import Path

from esd.ps_server.core.shard import Shard
from esd.ps_server.core.store import Store
from esd.ps_server.stores.directory.store import DirectoryStore
from esd.ps_server.stores.memory import MemoryStore
from esd.ps_server.stores.places import check_url
from esd.ps_server.stores.redis.connection import RedisAccess, address_of
from esd.ps_server.stores.redis.store import RedisStore
from esd.services.domain.errors import InvalidArgument

_REDIS_SCHEMES = ("redis://", "rediss://", "redis+cluster://", "rediss+cluster://")
_URL_ONLY = RedisAccess()


def open_store(
    url: str,
    shard: Shard,
    timeout_seconds: float,
    access: RedisAccess = _URL_ONLY,
    checkpoint_dir: Path | str | None = None,
) -> Store:
    """Opens a store in the memory of this process, with or without a checkpoint directory, or in Redis.

    Args:
        url: `memory`, or the URL of a Redis.
        shard: the shard whose ids the store keeps.
        timeout_seconds: longest wait for one answer of Redis.
        access: secrets and certificates for Redis that are not in the URL.
        checkpoint_dir: directory, or URL in an object store, of a memory store's checkpoints; None: no data outlives
            the process.

    Raises:
        InvalidArgument: the URL names no store, or a checkpoint directory is given for Redis.
        Unavailable: Redis is out of reach.
        FailedPrecondition: Redis could lose rows, has lost some, or holds rows in the layout of another version.
    """
    check_store(url, checkpoint_dir)
    if url == "memory":
        if isinstance(checkpoint_dir, str):
            return _object_store(checkpoint_dir, shard)
        return MemoryStore() if checkpoint_dir is None else DirectoryStore(checkpoint_dir, shard)
    return RedisStore(url, shard, timeout_seconds, access)


def check_store(url: str, checkpoint_dir: Path | str | None) -> None:
    """Checks the arguments of `open_store` without opening a file or a connection.

    Raises:
        InvalidArgument: a URL names no store, or a checkpoint directory is given for Redis.
        FailedPrecondition: the library for object stores is not installed.
    """
    if isinstance(checkpoint_dir, str):
        check_url(checkpoint_dir)
    if url == "memory":
        return
    if not url.startswith(_REDIS_SCHEMES):
        raise InvalidArgument(
            f"store {url.partition(':')[0]!r} is neither memory nor a URL of {', '.join(_REDIS_SCHEMES)}"
        )
    address_of(url)
    if checkpoint_dir is not None:
        raise InvalidArgument("a checkpoint directory is for the memory store; Redis keeps checkpoints itself")


def _object_store(url: str, shard: Shard) -> Store:
    """Opens a store whose checkpoints are objects; only then is their library imported, which not all have."""
    from esd.ps_server.stores.objects.store import ObjectStore  # noqa: PLC0415

    return ObjectStore(url, shard)
