"""The comparison of graphs with PyKEEN: its whole batches, and the proxy that counts bytes."""

from __future__ import annotations

import asyncio
from pathlib import Path

from benchmarks.graphs.counted import CountingProxy
from benchmarks.graphs.settings import BATCH, Settings
from esd.run.prepare import prepare
from esd.run.stream import global_batches
from tests.support.graphs import write_graph


async def test_a_proxy_counts_the_bytes_of_all_connections_in_both_directions() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.read()
        writer.write(2 * asked)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with server, CountingProxy() as proxy:
        address = await proxy.reach("driver", f"{host}:{port}")
        for size in (70_000, 5):
            near, _, there = address.rpartition(":")
            reader, writer = await asyncio.open_connection(near, int(there))
            writer.write(size * b"x")
            writer.write_eof()
            assert len(await reader.read()) == 2 * size
            writer.close()
    assert (proxy.towards, proxy.back) == (70_005, 140_010)


def test_only_whole_batches_are_trained(tmp_path: Path) -> None:
    graph = write_graph(tmp_path, triples=200 + 2 * BATCH + 9)
    settings = Settings(graph, dim=8, negatives=20, epochs=3, learning_rate=0.1)
    run = prepare(settings.options(workers=2, seed=0))
    assert len(settings.dataset.triples.parts["train"]) == 2 * BATCH + 9
    assert [len(batch) for batch in global_batches(run.stream, run.job.batch_size)] == [BATCH] * 6
