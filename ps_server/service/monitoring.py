"""Updates the server's health and metrics every two seconds: reachability of the store, fill of the tables."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from esd.ps_server.core.store import Store
from esd.ps_server.core.tables import Tables
from esd.ps_server.service.store_access import StoreThreads
from esd.services.domain.errors import EsdError, FailedPrecondition
from esd.services.runtime import metrics
from esd.services.runtime.server import Server

_log = logging.getLogger(__name__)

_INTERVAL_SECONDS = 2.0  # a Redis spends as long on these counts as on a small push


@asynccontextmanager
async def store_followed(
    store: Store, threads: StoreThreads, server: Server, refuse_waiting: Callable[[FailedPrecondition], None]
) -> AsyncIterator[None]:
    """Keeps the server's health at the reachability of its store while the block runs; it starts healthy.

    After StoreLost every request is refused with the reason, and `refuse_waiting` ends the waiting pulls with it.
    """
    await server.set_serving(True)
    metrics.STORE_UP.set(1)
    following = asyncio.create_task(_follow(store, threads, server, refuse_waiting))
    try:
        yield
    finally:
        following.cancel()


@asynccontextmanager
async def tables_measured(tables: Tables, threads: StoreThreads) -> AsyncIterator[None]:
    """Keeps the metrics of all tables up to date while the block runs."""
    measuring = asyncio.create_task(_keep_measuring(tables, threads))
    try:
        yield
    finally:
        measuring.cancel()


async def _follow(
    store: Store, threads: StoreThreads, server: Server, refuse_waiting: Callable[[FailedPrecondition], None]
) -> None:
    reachable = True
    while True:
        await asyncio.sleep(_INTERVAL_SECONDS)
        was_reachable = reachable
        try:
            await threads.ask(store.ping)
            reachable = True
            threads.refuse(None)
        except Exception as error:  # noqa: BLE001 - this task alone renews the claim, so even a defect must not end it
            reachable = False
            if was_reachable:
                _log.error("not serving: %s", error, exc_info=None if isinstance(error, EsdError) else error)
            if isinstance(error, FailedPrecondition):
                threads.refuse(error)
                refuse_waiting(error)
        metrics.STORE_UP.set(reachable)
        if reachable != was_reachable:
            await server.set_serving(reachable)


async def _keep_measuring(tables: Tables, threads: StoreThreads) -> None:
    while True:
        await asyncio.sleep(_INTERVAL_SECONDS)
        with suppress(Exception):  # the store is out of reach, which esd_store_up shows
            await threads.read(_measure, tables)


def _measure(tables: Tables) -> None:
    for table in tables.all():
        name = table.spec.name
        metrics.TABLE_ROWS.labels(name).set(table.stored_rows())
        metrics.PENDING_GRADIENTS.labels(name).set(table.pending_gradients())
        metrics.PENDING_GRADIENT_BYTES.labels(name).set(table.pending_bytes())
        metrics.WAITING_PULLS.labels(name)  # shows 0 before the first pull waits
