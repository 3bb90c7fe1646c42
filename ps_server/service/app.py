"""A running parameter server: store, threads, tables and gRPC service, put together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing

from esd.ps_server.core.shard import Shard
from esd.ps_server.core.tables import Tables
from esd.ps_server.service.monitoring import store_followed, tables_measured
from esd.ps_server.service.servicer import SERVICE, ParameterServer, add_to_server
from esd.ps_server.service.settings import ParameterServerSettings
from esd.ps_server.service.store_access import StoreThreads, open_configured_store
from esd.services.runtime.server import Server, serve


@asynccontextmanager
async def parameter_server(settings: ParameterServerSettings) -> AsyncIterator[Server]:
    """Serves while the block runs.

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
        tables = await asyncio.to_thread(Tables, store, shard, settings.max_tables)
        servicer = ParameterServer(tables, shard, store.name, threads, settings)
        service = (add_to_server, servicer, SERVICE)
        async with (
            serve("ps", [service], settings) as server,
            store_followed(store, threads, server, servicer.refuse_waiting),
            tables_measured(tables, threads),
        ):
            yield server
