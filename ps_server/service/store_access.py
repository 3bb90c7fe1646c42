"""The service's access to its store: opened as configured, used from threads of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import ParamSpec, TypeVar

from esd.ps_server.core.shard import Shard
from esd.ps_server.core.store import Store
from esd.ps_server.service.settings import ParameterServerSettings
from esd.ps_server.stores.by_url import open_store
from esd.ps_server.stores.redis.connection import RedisAccess
from esd.ps_server.stores.redis.room import RedisRoom, redis_room
from esd.services.domain.errors import FailedPrecondition
from esd.services.runtime import metrics
from esd.services.runtime.settings import SettingsError
from esd.services.runtime.threads import named_threads

P = ParamSpec("P")
T = TypeVar("T")


def open_configured_store(settings: ParameterServerSettings, shard: Shard) -> Store:
    """Opens the configured store for one shard.

    Raises as `open_store` does, and SettingsError if the password file is not UTF-8.
    """
    return open_store(
        settings.store.get_secret_value(),
        shard,
        settings.store_timeout_seconds,
        _access(settings),
        settings.checkpoint_dir,
    )


def configured_room(settings: ParameterServerSettings) -> RedisRoom:
    """Returns the memory that the configured Redis has for more rows.

    Raises as `redis_room` does, and SettingsError if the password file is not UTF-8.
    """
    return redis_room(settings.store.get_secret_value(), settings.store_timeout_seconds, _access(settings))


def _access(settings: ParameterServerSettings) -> RedisAccess:
    return RedisAccess(
        password=_password(settings),
        authority=settings.store_tls_ca,
        certificate=settings.tls_certificate,
        key=settings.tls_key,
    )


def _password(settings: ParameterServerSettings) -> str | None:
    path = settings.store_password_file
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8").strip()
    except UnicodeDecodeError:  # its message quotes the bytes of the file, which must not reach a log
        raise SettingsError(
            f"{settings.variable('store_password_file')}={path}: the file holds no password in UTF-8"
        ) from None


class StoreThreads:
    """Bounded numbers of threads that work on the store, so that the event loop never blocks.

    Calls beyond the threads queue; the limit of concurrent RPCs bounds the queue. Reads have threads of their own,
    because a write may wait for the disk of another process, and workers wait for the rows of a read.

    Args:
        threads: number of threads that read, and of threads that write.
    """

    def __init__(self, threads: int) -> None:
        self._readers = named_threads("ps-read", threads)
        self._writers = named_threads("ps-write", threads)
        self._refusal: FailedPrecondition | None = None

    def refuse(self, reason: FailedPrecondition | None) -> None:
        """Makes reads and writes raise this error from now on; None: they run again."""
        self._refusal = reason

    @property
    def refuses(self) -> bool:
        """Whether reads and writes raise at present."""
        return self._refusal is not None

    async def ask(self, work: Callable[[], None]) -> None:
        """Runs `work` in a thread, even while reads and writes are refused."""
        await self._run(self._readers, "read", work)

    async def read(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs `work` in a thread, measured as a read."""
        self._check()
        return await self._run(self._readers, "read", lambda: work(*args, **kwargs))

    async def write(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs `work` in a thread, measured as a write. A cancelled caller does not stop it."""
        self._check()
        return await self._run(self._writers, "write", lambda: work(*args, **kwargs))

    def close(self) -> None:
        """Waits for running work; drops queued work."""
        for executor in (self._readers, self._writers):
            executor.shutdown(cancel_futures=True)

    def _check(self) -> None:
        if self._refusal is not None:
            raise FailedPrecondition(str(self._refusal))

    async def _run(self, executor: Executor, operation: str, work: Callable[[], T]) -> T:
        with metrics.STORE_CALLS.track_inprogress():
            return await asyncio.get_running_loop().run_in_executor(executor, _timed, operation, work)


def _timed(operation: str, work: Callable[[], T]) -> T:
    started = time.perf_counter()
    try:
        return work()
    finally:
        metrics.STORE_SECONDS.labels(operation).observe(time.perf_counter() - started)
