"""A running parameter server: store, threads, tables and gRPC service, put together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing

from esd.ps_server.core.shard import Shard
from esd.ps_server.core.tables import Tables
from esd.ps_server.service.monitoring import store_followed, tables_measured
from esd.ps_server.service.servicer import SERVICE, ParameterServer, add_to_server
from esd.ps_server.service.settings import ParameterServerSettings
from esd.ps_server.service.store_access import StoreThreads, open_configured_store
from esd.services.runtime.process import announce_progress
from esd.services.runtime.server import Server, serve

_REPORTED_SECONDS = 10.0

_log = logging.getLogger(__name__)


@asynccontextmanager
async def parameter_server(settings: ParameterServerSettings) -> AsyncIterator[Server]:
    """Serves while the block runs, which begins when all tables are loaded.

    Raises:
        InvalidArgument: the shard or the store's URL is invalid.
        Unavailable: Redis is out of reach.
        FailedPrecondition: Redis could lose rows, another process serves the shard, stored data is damaged, or the
            server cannot listen on an address.
    """
    shard = Shard(settings.shard, settings.shards)
    with (
        closing(await asyncio.to_thread(open_configured_store, settings, shard)) as store,
        closing(StoreThreads(settings.store_threads)) as threads,
    ):
        await asyncio.to_thread(store.claim, exclusive=False)
        tables = Tables(store, shard, settings.max_tables, loaded=False)
        servicer = ParameterServer(tables, shard, store.name, threads, settings)
        service = (add_to_server, servicer, SERVICE)
        async with serve("ps", [service], settings) as server:
            await _load(tables)
            async with (
                store_followed(store, threads, server, servicer.refuse_waiting),
                tables_measured(tables, threads),
            ):
                yield server


async def _load(tables: Tables) -> None:
    """Loads the tables. Meanwhile every call learns of the progress, and log and launcher now and then."""
    loading = asyncio.create_task(asyncio.to_thread(tables.load))
    while not (await asyncio.wait([loading], timeout=_REPORTED_SECONDS))[0]:
        _log.info("%s", tables.progress)
        announce_progress("ps", tables.progress)
    await loading
