"""A parameter server with many rows in its checkpoint directory, and its answers until they are loaded."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from esd.ps_server.core.shard import Shard
from esd.ps_server.core.table import Table
from esd.ps_server.service import app
from esd.ps_server.service.app import parameter_server
from esd.ps_server.service.settings import ParameterServerSettings
from esd.ps_server.stores.directory import row_files
from esd.ps_server.stores.directory.store import DirectoryStore
from esd.ps_server.stores.folders import Folder
from esd.services.clients.checkpoints import CheckpointClient, StoredState
from esd.services.clients.parameter_server import ParameterServerConnection
from esd.services.domain.errors import Loading
from esd.services.domain.rows import RowBlock
from esd.services.domain.tables import OptimizerSpec, TableSpec
from esd.services.runtime.retry import repeated
from testbed.free_port import free_port

SPEC = TableSpec("t", 8, OptimizerSpec(), 0, init_scale=0.01)
ROWS = 120_000


def checkpointed(directory: Path) -> None:
    """Leaves a committed checkpoint there."""
    store = DirectoryStore(directory, Shard())
    store.claim(exclusive=True)
    store.create(SPEC)
    table = Table(SPEC, store.open(SPEC), Shard())
    table.history.begin_epoch(1, b"dispatcher", takes_over=False)
    ids = np.arange(ROWS, dtype=np.uint64)
    table.push_rows(RowBlock(ids, np.ones(ROWS, np.int64), np.ones((ROWS, SPEC.row_width), np.float32)), 1)
    table.history.cut(1, 10, 0, 1)
    table.history.save(1, 10)
    table.history.commit(1, 10, b"manifest", 1)
    store.close()


class Reading:
    """Holds a server up in the middle of its files, and lets it go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps = threading.Semaphore(0)
        self.reached = threading.Semaphore(0)
        verify = row_files._verify

        def held_up(folder: Folder, name: str, seen: Any) -> None:
            def step(size: int) -> None:
                seen(size)
                self.reached.release()
                self.steps.acquire()

            verify(folder, name, step)

        monkeypatch.setattr(row_files, "_verify", held_up)

    async def next(self) -> None:
        """Waits until the server has read another piece."""
        await asyncio.to_thread(self.reached.acquire)


async def test_a_server_answers_while_it_loads_and_callers_wait_as_long_as_it_gets_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpointed(tmp_path)
    monkeypatch.setattr(app, "_REPORTED_SECONDS", 0.01)
    reading = Reading(monkeypatch)
    address = f"127.0.0.1:{free_port()}"
    settings = ParameterServerSettings(listen=address, checkpoint_dir=tmp_path, metrics_port=0)

    async def serve(until: asyncio.Event) -> None:
        async with parameter_server(settings):
            await until.wait()

    over = asyncio.Event()
    serving = asyncio.create_task(serve(over))
    asked = 0
    try:
        await reading.next()
        async with ParameterServerConnection(address) as server:
            client = CheckpointClient(server, SPEC)

            async def ask() -> StoredState:
                nonlocal asked
                asked += 1
                reading.steps.release()
                return await client.get_checkpoint()

            texts: list[str] = []
            told: set[str] = set()  # to the launcher of the server, on its standard output
            for _ in range(2):
                with pytest.raises(Loading, match=r"loads its tables from its checkpoints: \d+ MiB are read") as caught:
                    await client.get_checkpoint()
                texts.append(str(caught.value))
                while texts[-1] not in told:
                    said = map(json.loads, capsys.readouterr().out.splitlines())
                    told |= {line["progress"] for line in said if line["event"] == "loading"}
                    await asyncio.sleep(0)
                reading.steps.release()
                await reading.next()
            assert texts[0] != texts[1]
            stored = await repeated(ask, 5.0)  # shorter than the whole takes, and longer than each step
            assert stored.rows == ROWS
            assert asked > 3
    finally:
        over.set()
        reading.steps.release(1000)
        await serving
