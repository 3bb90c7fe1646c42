"""How full the tables are, as metrics: every few seconds, since asking Redis for it takes as long as a small push."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from ps_server.core.tables import Tables
from ps_server.service.store_pool import StorePool
from services.domain.errors import EsdError
from services.runtime import metrics

_INTERVAL_SECONDS = 2.0


@asynccontextmanager
async def measured(tables: Tables, pool: StorePool) -> AsyncIterator[None]:
    """Keeps the metrics of all tables up to date while the block runs."""
    task = asyncio.create_task(_keep_measuring(tables, pool))
    try:
        yield
    finally:
        task.cancel()


async def _keep_measuring(tables: Tables, pool: StorePool) -> None:
    while True:
        await asyncio.sleep(_INTERVAL_SECONDS)
        with suppress(EsdError):  # the store is away, which esd_store_up tells
            await pool.read(_measure, tables)


def _measure(tables: Tables) -> None:
    for table in tables.all():
        name = table.spec.name
        metrics.TABLE_ROWS.labels(name).set(table.stored_rows())
        metrics.PENDING_GRADIENTS.labels(name).set(table.pending_gradients())
        metrics.PENDING_GRADIENT_BYTES.labels(name).set(table.pending_bytes())
        metrics.WAITING_PULLS.labels(name)  # shows 0 before the first pull waits
