"""The web server of metrics and the page closes every connection that it has accepted."""

from __future__ import annotations

import asyncio
import gc
import socket
import warnings

import pytest

from esd.services.runtime.http import serve_http


@pytest.mark.parametrize("turns", range(8))
async def test_the_end_of_the_server_closes_a_connection_in_any_state(turns: int) -> None:
    """After this many turns of the event loop the connection waits, is accepted, or is being answered."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        async with serve_http("nothing", "127.0.0.1:0", 0, "PORT", {}) as address:
            assert address is not None
            await asyncio.sleep(0)  # the server waits for connections
            with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2]))):
                for _ in range(turns):
                    await asyncio.sleep(0)
        await asyncio.sleep(0)
        gc.collect()
    assert [str(each.message) for each in caught if issubclass(each.category, ResourceWarning)] == []
