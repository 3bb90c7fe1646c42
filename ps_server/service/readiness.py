"""The server is serving while its store can be reached."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ps_server.core.store import Store
from ps_server.service.store_pool import StorePool
from services.domain.errors import EsdError
from services.runtime import metrics
from services.runtime.server import Server

_log = logging.getLogger(__name__)

_INTERVAL_SECONDS = 2.0


@asynccontextmanager
async def follow_store(store: Store, pool: StorePool, server: Server) -> AsyncIterator[None]:
    """Reports the store's health as the server's while the block runs; it starts healthy."""
    await server.set_serving(True)
    metrics.STORE_UP.set(1)
    watch = asyncio.create_task(_watch(store, pool, server))
    try:
        yield
    finally:
        watch.cancel()


async def _watch(store: Store, pool: StorePool, server: Server) -> None:
    reachable = True
    while True:
        await asyncio.sleep(_INTERVAL_SECONDS)
        was_reachable = reachable
        try:
            await pool.read(store.ping)
            reachable = True
        except EsdError as error:
            reachable = False
            if was_reachable:
                _log.error("not serving: %s", error)
        metrics.STORE_UP.set(reachable)
        if reachable != was_reachable:
            await server.set_serving(reachable)
