"""A worker as other workers see it: its service, and the rows that it waits for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from esd.services.clients.frame import Frame
from esd.services.clients.traffic import Traffic
from esd.services.clients.worker import AsyncWorkerClient
from esd.services.domain.plans import Transfers
from esd.services.domain.rows import RowBlock
from esd.services.domain.tables import TableSpec
from esd.services.runtime.security import PLAINTEXT
from esd.services.runtime.server import serve
from esd.worker.service.inbox import Arrival, ExpectedRows, Inbox
from esd.worker.service.link import Link
from esd.worker.service.servicer import SERVICE, WorkerService, add_to_server
from esd.worker.service.settings import WorkerSettings
from tests.support.frames import SPEC

EPOCH, SLOT = 3, 1
CLIPPED = TableSpec("u", 4, SPEC.optimizer, seed=1, init_scale=0.5)
TABLES = (SPEC, CLIPPED)


def floats_of(ids: ArrayLike, version: int, width: int = SPEC.row_width) -> NDArray[np.float32]:
    """Rows at a version, float32 [r, W], with other floats for each row and version."""
    seeds = np.asarray(ids, np.uint64).astype(np.int64)
    return (np.arange(width) + 1000 * version + 7 * seeds[:, None]).astype(np.float32)


def transfers_of(ids: ArrayLike, version: int) -> Transfers:
    ids = np.asarray(ids, np.uint64)
    return Transfers(ids, np.arange(len(ids), dtype=np.uint32), np.full(len(ids), version, np.int64), early=0)


@dataclass
class Expecting:
    """The rows for which one iteration waits.

    Attributes:
        arrival: set when all rows have come.
        staging: memory of the rows, NaN at first: rows of the first table, then rows of the other tables.
    """

    arrival: Arrival
    staging: list[NDArray[np.float32]] = field(default_factory=list)


async def expect(inbox: Inbox, iteration: int, *tables: tuple[ArrayLike, int]) -> Expecting:
    """Has an inbox wait for rows, by table: ids, and the version that all of them have; none of further tables."""
    rooms, expected = [], []
    for number, spec in enumerate(inbox.tables if tables else ()):
        rows = transfers_of(*tables[number]) if number < len(tables) else transfers_of([], 0)
        rooms.append(np.full((len(rows), spec.row_width), np.nan, np.float32))
        expected.append(ExpectedRows(rows, rooms[-1], np.arange(len(rows))))
    return Expecting(await inbox.expect(iteration, expected), rooms)


def send(
    client: AsyncWorkerClient,
    iteration: int,
    ids: ArrayLike,
    version: int,
    *,
    epoch: int = EPOCH,
    spec: TableSpec = SPEC,
    values: NDArray[np.float32] | None = None,
    urgent: bool = False,
) -> list[Frame]:
    rows = transfers_of(ids, version)
    floats = floats_of(ids, version, spec.row_width) if values is None else values
    return client.deliver(spec, RowBlock(rows.ids, rows.versions, floats), iteration, epoch=epoch, urgent=urgent)


@asynccontextmanager
async def worker_service() -> AsyncIterator[tuple[WorkerService, str]]:
    """Serves the calls of other workers, at an address."""
    given: dict[str, Any] = {"name": "w1", "dispatcher": "127.0.0.1:1", "link": 1e9, "cache_rows": 8}
    settings = WorkerSettings(**given, metrics_port=None, grace_seconds=0)
    service = WorkerService(settings)
    async with serve("worker", [(add_to_server, service, SERVICE)], settings) as server:
        yield service, server.address


@asynccontextmanager
async def receiving(
    within: float = 60, first_iteration: int = 1, tables: Sequence[TableSpec] = TABLES, link: Link | None = None
) -> AsyncIterator[tuple[Inbox, str]]:
    """A worker in slot 1 that takes rows of epoch 3: its inbox, and its address."""
    async with worker_service() as (service, address):
        inbox = Inbox(EPOCH, SLOT, first_iteration, tables, within)
        service.deliveries.begin(inbox, link or Link(1e9, shape=False))
        yield inbox, address
        await inbox.close()


@asynccontextmanager
async def sending(
    address: str, *, silence: float = 60, patience: float = 60, traffic: Traffic | None = None
) -> AsyncIterator[AsyncWorkerClient]:
    """A client of the worker in slot 1."""
    client = AsyncWorkerClient(
        address, SLOT, timeout=silence, patience=patience, traffic=traffic or Traffic(), max_message_bytes=2**26,
        credentials=PLAINTEXT, caller="w0",
    )  # fmt: skip
    try:
        yield client
    finally:
        await client.close()
