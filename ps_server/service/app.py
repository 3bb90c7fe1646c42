"""A running parameter server: store, threads, tables and gRPC service, put together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing

from protos import ps_pb2, ps_pb2_grpc
from ps_server.core.shard import Shard
from ps_server.core.tables import Tables
from ps_server.service.readiness import follow_store
from ps_server.service.servicer import ParameterServer
from ps_server.service.settings import ParameterServerSettings
from ps_server.service.store_pool import StorePool
from ps_server.service.stored import open_settings_store
from ps_server.service.table_metrics import measured
from services.runtime.server import Server, serve

SERVICE = ps_pb2.DESCRIPTOR.services_by_name["ParameterServer"].full_name


@asynccontextmanager
async def parameter_server(settings: ParameterServerSettings) -> AsyncIterator[Server]:
    """Serves while the block runs.

    Raises:
        InvalidArgument: shard or store URL make no sense.
        Unavailable: Redis is out of reach.
        FailedPrecondition: Redis cannot keep these rows, another process serves the checkpoint directory, a
            checkpoint is damaged, or an address cannot be listened on.
    """
    shard = Shard(settings.shard, settings.shards)
    with (
        closing(await asyncio.to_thread(open_settings_store, settings, shard)) as store,
        closing(StorePool(settings.store_threads)) as pool,
    ):
        await asyncio.to_thread(store.claim, alone=False)
        tables = await asyncio.to_thread(Tables, store, shard)
        servicer = ParameterServer(tables, shard, store.name, pool, settings)
        service = (ps_pb2_grpc.add_ParameterServerServicer_to_server, servicer, SERVICE)
        async with (
            serve("ps", [service], settings) as server,
            follow_store(store, pool, server),
            measured(tables, pool),
        ):
            yield server
