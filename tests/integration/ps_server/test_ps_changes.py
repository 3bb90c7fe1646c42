"""Readers follow the changed rows of a table: rounds, breaks, losses, refusals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from esd.ps_server.service.app import parameter_server
from esd.ps_server.service.settings import ParameterServerSettings
from esd.services.clients.parameter_server import ParameterServerConnection
from esd.services.clients.tables import TableClient
from esd.services.domain.changes import ChangedRows, RoundEnd
from esd.services.domain.errors import FailedPrecondition, InvalidArgument, NotFound, PermissionDenied, Unauthenticated
from esd.services.domain.ids import shard_of
from esd.services.domain.parcels import Parcel
from esd.services.domain.rows import RowBlock
from esd.services.domain.worker_set import WorkerSet
from esd.services.runtime.security import Credentials
from esd.services.runtime.settings import ClientSettings
from tests.support.certificates import Certificates
from tests.support.ps_client import SPEC, Client

PAUSE = 0.05
Start = Callable[..., Coroutine[Any, Any, Client]]


@dataclass
class Mirror:
    """The rows that a reader has, by id, as the first value of each."""

    rows: dict[int, float] = field(default_factory=dict)
    sent: int = 0
    anew: int = 0

    async def round(self, changes: AsyncGenerator[ChangedRows]) -> RoundEnd:
        """Takes a round."""
        ids: list[int] = []
        async with asyncio.timeout(60):
            async for part in changes:
                if part.anew:
                    self.rows, self.anew = {}, self.anew + 1
                ids += part.ids.tolist()
                self.rows |= dict(zip(part.ids.tolist(), part.values[:, 0].tolist(), strict=True))
                if part.end is not None:
                    break
        assert len(ids) == len(set(ids)), "a row comes once in a round"
        self.sent += len(ids)
        assert part.end is not None
        return part.end

    async def until(self, changes: AsyncGenerator[ChangedRows], **rows: float) -> RoundEnd:
        """Takes rounds until the rows have these values; names are `id` and a number."""
        wanted = {int(name.removeprefix("id")): value for name, value in rows.items()}
        while True:
            end = await self.round(changes)
            if wanted.items() <= self.rows.items():
                return end


async def push(client: Client, ids: list[int], version: int, value: float, epoch: int = 0) -> None:
    rows = np.full((len(ids), SPEC.row_width), value, np.float32)
    block = RowBlock(np.array(ids, np.uint64), np.full(len(ids), version, np.int64), rows)
    await client.push(Parcel(block), epoch=epoch)


async def test_a_reader_gets_all_rows_and_then_what_changes_once_a_round(start: Start, any_store: Any) -> None:
    client = await start(**any_store)
    await client.create_table()
    await push(client, [1, 2, 3], 1, 1.0)
    mirror = Mirror()
    async with aclosing(client.changes(0, pause=PAUSE)) as changes:
        end = await mirror.round(changes)
        assert (mirror.rows, mirror.anew, end.age) == ({1: 1.0, 2: 1.0, 3: 1.0}, 1, 0.0)
        for version in range(2, 6):
            await push(client, [2], version, float(version))
        await push(client, [4], 1, 4.0)
        end = await mirror.until(changes, id2=5.0, id4=4.0)
        assert mirror.rows == {1: 1.0, 2: 5.0, 3: 1.0, 4: 4.0}
        assert mirror.sent <= 3 + 5
        assert 0 < end.age < 60
        await client.forget(np.array([1], np.uint64), 2**30)
        initial = (await client.look_up(np.array([1], np.uint64)))[1][0, 0]
        await mirror.until(changes, id1=float(initial))
    assert mirror.anew == 1


async def test_a_reader_that_comes_back_goes_on(start: Start, any_store: Any) -> None:
    client = await start(**any_store)
    await client.create_table()
    mirror = Mirror()
    async with aclosing(client.changes(0, pause=PAUSE)) as changes:
        position = (await mirror.round(changes)).position
    await push(client, [7], 1, 7.0)
    async with aclosing(client.changes(0, position, pause=PAUSE)) as changes:
        position = (await mirror.until(changes, id7=7.0)).position
    async with aclosing(client.changes(0, position, pause=PAUSE)) as changes:
        await mirror.round(changes)
    assert (mirror.anew, mirror.sent) == (1, 1)


async def test_a_reader_that_was_away_for_too_many_changes_begins_anew(start: Start) -> None:
    client = await start(max_changed_bytes=2**16)
    await client.create_table()
    mirror = Mirror()
    async with aclosing(client.changes(0, pause=PAUSE)) as changes:
        position = (await mirror.round(changes)).position
    for first in range(0, 12_000, 1000):
        await push(client, list(range(first, first + 1000)), 1, 1.0)
    async with aclosing(client.changes(0, position, pause=PAUSE)) as changes:
        await mirror.round(changes)
        assert mirror.anew == 2
        assert len(mirror.rows) == 12_000
        await push(client, [3], 2, 2.0)
        await mirror.until(changes, id3=2.0)
    assert mirror.anew == 2


async def test_a_restore_and_a_restart_begin_anew(start: Start, tmp_path: Any) -> None:
    settings = {"checkpoint_dir": tmp_path, "metrics_port": None, "grace_seconds": 0}
    mirror = Mirror()
    async with (
        parameter_server(ParameterServerSettings(**settings)) as server,
        Client(server.address) as client,
        aclosing(client.changes(0, pause=PAUSE)) as changes,
    ):
        await client.create_table()
        await push(client, [1], 1, 1.0)
        await mirror.until(changes, id1=1.0)
        await client.restore(0, epoch=1)
        while mirror.rows:
            end = await mirror.round(changes)
        assert mirror.anew == 2
        await push(client, [2], 1, 2.0, epoch=1)
        await mirror.until(changes, id2=2.0)
    async with (
        parameter_server(ParameterServerSettings(**settings)) as server,
        Client(server.address) as client,
        aclosing(client.changes(0, end.position, pause=PAUSE)) as changes,
    ):
        await mirror.round(changes)
        assert (mirror.rows, mirror.anew) == ({}, 3), "what no checkpoint has is lost with the process"


async def test_the_end_of_a_round_tells_of_the_end_of_the_job(start: Start) -> None:
    client = await start()
    await client.create_table()
    mirror = Mirror()
    async with aclosing(client.changes(0, pause=PAUSE)) as changes:
        end = await mirror.round(changes)
        assert (end.checkpoint, end.finished) == (0, False)
        await push(client, [1], 1, 1.0)
        await client.cut(4, 0, WorkerSet.of([0]), epoch=0, last=True)
        while not end.finished:
            end = await mirror.round(changes)
    assert mirror.rows == {1: 1.0}, "with the news come all rows"


async def test_each_server_tells_of_its_own_rows(start: Start) -> None:
    clients = [await start(shard=shard, shards=2) for shard in range(2)]
    servers = [client.server for client in clients]
    for client in clients:
        await client.create_table()
    ids = np.arange(50, dtype=np.uint64)
    for shard, client in enumerate(clients):
        await push(client, ids[shard_of(ids, 2) == shard].tolist(), 1, float(shard))
    table = TableClient(servers, SPEC)
    for shard in range(2):
        mirror = Mirror()
        async with aclosing(table.changes(shard, pause=PAUSE)) as changes:
            await mirror.round(changes)
        assert mirror.rows == dict.fromkeys(ids[shard_of(ids, 2) == shard].tolist(), float(shard))
    swapped = TableClient(servers[::-1], SPEC)
    with pytest.raises(FailedPrecondition, match="the job lists this server as shard 0 of 2, and it is shard 1"):
        await Mirror().round(swapped.changes(0))


async def test_what_does_not_fit_is_refused(start: Start) -> None:
    client = await start()
    with pytest.raises(NotFound, match="there is no table"):
        await Mirror().round(client.changes(0))
    await client.create_table()
    other = TableClient([client.server], replace(SPEC, seed=SPEC.seed + 1))
    with pytest.raises(FailedPrecondition, match="exists with seed"):
        await Mirror().round(other.changes(0))
    with pytest.raises(InvalidArgument, match="position has 3 bytes, one of an answer has 16"):
        await Mirror().round(client.changes(0, b"abc"))
    with pytest.raises(InvalidArgument, match=r"pause_ms is 11000, it must be in 50\.\.10000"):
        await Mirror().round(client.changes(0, pause=11))
    mirror = Mirror()
    await mirror.round(client.changes(0, bytes(16), pause=PAUSE))
    assert mirror.anew == 1, "a position of another server is none"


async def test_a_served_model_may_follow_and_a_stranger_may_not(certificates: Certificates) -> None:
    settings = ParameterServerSettings(
        metrics_port=None, grace_seconds=0, tls_clients="*", **certificates.of("service")
    )
    async with parameter_server(settings) as server:

        def connected(name: str) -> ParameterServerConnection:
            shown = Credentials.read(ClientSettings(**certificates.of(name)))
            return ParameterServerConnection(server.address, credentials=shown)

        async with connected("worker") as worker, connected("model") as model, connected("observer") as observer:
            await worker.create_table(SPEC)
            mirror = Mirror()
            await mirror.round(TableClient([model], SPEC).changes(0, pause=PAUSE))
            assert mirror.anew == 1
            for other, role in ((worker, "worker"), (observer, "observer")):
                with pytest.raises(PermissionDenied, match=f"Changes is for the roles .*model.*, .* is of {role}"):
                    await Mirror().round(TableClient([other], SPEC).changes(0))
            with pytest.raises(PermissionDenied, match="is of model"):
                await model.create_table(SPEC)


async def test_a_reader_without_the_token_is_refused(certificates: Certificates, tmp_path: Any) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    settings = ParameterServerSettings(
        metrics_port=None, grace_seconds=0, token_file=token, **certificates.of("service")
    )
    stranger = Credentials.read(ClientSettings(**certificates.of("client")))
    async with (
        parameter_server(settings) as server,
        ParameterServerConnection(server.address, credentials=stranger) as connection,
    ):
        with pytest.raises(Unauthenticated):
            await Mirror().round(TableClient([connection], SPEC).changes(0))
