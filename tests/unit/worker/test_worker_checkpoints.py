"""A worker's part of checkpoints: at the end of the stream too, and where a parameter server's disk has no room."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

import pytest

from esd.services.domain.errors import InvalidArgument, StorageUnwritable, Unavailable
from esd.services.domain.reports import FlushReport, TransferCounts
from esd.services.domain.tables import OptimizerSpec, TableSpec
from esd.worker.service.checkpoint import WorkerCheckpoints
from esd.worker.service.link import Link
from esd.worker.service.parameter_servers import ParameterServers
from esd.worker.service.settings import WorkerSettings
from esd.worker.training.dense import DenseParameters

FULL = StorageUnwritable("part-5-dense: No space left on device; make room")
MOVED = TransferCounts(flush_push=3)


class Servers:
    """Parameter servers whose disk takes nothing for a number of calls."""

    def __init__(self, refusals: int, max_dense_bytes: int = 6) -> None:
        self.refusals = refusals
        self.max_dense_bytes = max_dense_bytes
        self.stored: list[object] = []

    async def _store(self, *what: object, last: bool = False) -> None:
        if self.refusals:
            self.refusals -= 1
            raise FULL
        self.stored.append((*what, "last") if last else what)

    put_part = put_dense = cut = _store


class Dense(DenseParameters):
    """Parameters that all workers share once they are settled."""

    model_bytes = 6
    settled = False

    def __init__(self) -> None:
        pass

    def settle(self) -> None:
        self.settled = True

    def gather(self, *, leads: bool) -> None:
        self.settled = True

    def save(self) -> bytes:
        return b"dense" if self.settled else b"this worker's"

    def to_npz(self) -> bytes:
        return b"model" if self.settled else b"this worker's"


def checkpoints(
    servers: Servers, reports: list[FlushReport], storage_timeout: float = 20.0, *, taken: bool = True
) -> WorkerCheckpoints:
    async def flush(_: object) -> TransferCounts:
        return MOVED

    async def report(flushed: FlushReport) -> None:
        reports.append(flushed)

    membership: Any = SimpleNamespace(members="both", epoch=2, job=SimpleNamespace(takes_checkpoints=taken), slot=0)
    mover: Any = SimpleNamespace(flush=flush, servers=servers)
    return WorkerCheckpoints(membership, mover, Dense(), ThreadPoolExecutor(1), report, storage_timeout)


PLAN: Any = SimpleNamespace(iteration=5, stores_dense=True)
CHECKSUM = sha256(b"dense").hexdigest()


def test_a_model_that_no_server_stores_is_refused_before_it_is_trained() -> None:
    checkpoints(Servers(0), []).check_model_fits()
    with pytest.raises(
        InvalidArgument, match=r"have 6 bytes, and the parameter server stores 5 .ESD_PS_MAX_DENSE_BYTES"
    ):
        checkpoints(Servers(0, max_dense_bytes=5), []).check_model_fits()


async def test_a_checkpoint_that_finds_no_room_fails_and_the_worker_goes_on() -> None:
    reports: list[FlushReport] = []
    servers = Servers(refusals=1)
    await checkpoints(servers, reports).take(PLAN)
    assert servers.stored == []
    await checkpoints(servers, reports).take(PLAN)
    assert reports == [
        FlushReport(5, MOVED, 2, "", str(FULL), checkpoint=True),
        FlushReport(5, MOVED, 2, CHECKSUM, checkpoint=True),
    ]
    assert servers.stored == [(5, "dense", b"dense"), (5, "both")]


async def test_the_end_waits_for_room() -> None:
    reports: list[FlushReport] = []
    servers = Servers(refusals=2)
    await checkpoints(servers, reports).finish(PLAN)
    assert reports == [FlushReport(5, MOVED, 2, CHECKSUM)]
    assert servers.stored == [(b"model",), (5, "dense", b"dense"), (5, "both")]


async def test_the_end_right_behind_a_checkpoint_adds_nothing_to_it() -> None:
    reports: list[FlushReport] = []
    servers = Servers(refusals=0)
    worker = checkpoints(servers, reports)
    await worker.take(PLAN)
    await worker.finish(PLAN)
    assert [(report.dense_checksum, report.checkpoint) for report in reports] == [(CHECKSUM, True), (CHECKSUM, False)]
    assert servers.stored == [(5, "dense", b"dense"), (5, "both"), (b"model",)]


async def test_the_end_without_checkpoints_finishes_the_table() -> None:
    reports: list[FlushReport] = []
    servers = Servers(refusals=2)
    await checkpoints(servers, reports, taken=False).finish(PLAN)
    assert reports == [FlushReport(5, MOVED, 2, "")]
    assert servers.stored == [(b"model",), (5, "both", "last")]


async def test_the_end_waits_no_longer_than_it_may() -> None:
    with pytest.raises(StorageUnwritable, match="make room"):
        await checkpoints(Servers(refusals=1000), [], storage_timeout=0.1).finish(PLAN)


async def test_pushes_wait_for_room_as_they_wait_for_a_server_that_is_away() -> None:
    settings = WorkerSettings(name="a", dispatcher="127.0.0.1:1", link=1e9, cache_rows=8)
    table = TableSpec("t", 4, OptimizerSpec(), 0, 0.1)
    job: Any = SimpleNamespace(parameter_servers=("127.0.0.1:1",), table=table, tables=(table,))
    servers = ParameterServers(job, 0, Link(1e9, shape=False), settings)
    failures: list[Exception] = [FULL, Unavailable("it restarts"), FULL]

    async def push() -> int:
        if failures:
            raise failures.pop()
        return 7

    assert await servers._with_room(push) == 7
    await servers.aclose()
