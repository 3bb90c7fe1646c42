"""A TCP server whose connections end with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager

_TURNS = 3  # of the event loop, in which an accepted connection gets its task


@asynccontextmanager
async def tcp_server(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[None, None, None]],
) -> AsyncIterator[int]:
    """Serves each connection in its own task while the block runs; yields the port, at 127.0.0.1.

    Tasks that still run at the end of the block are cancelled. Every connection is closed with its task, also if the
    task has not begun yet: the garbage collector would report an open one in a later test.
    """
    tasks: set[asyncio.Task[None]] = set()

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(serve(reader, writer), name="connection")
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        task.add_done_callback(lambda _: writer.close())

    server = await asyncio.start_server(begin, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        for listening in server.sockets:
            asyncio.get_running_loop().remove_reader(listening)
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
