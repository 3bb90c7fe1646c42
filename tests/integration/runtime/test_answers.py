"""Answers that are no messages of their kind: the caller gets an error that names the call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from esd.services.domain.errors import Internal
from tests.support.frames import SPEC
from tests.support.server_client import ServerClient

NO_MESSAGE = b"\xff\xff\xff"


class _Babbling(grpc.GenericRpcHandler):
    """Answers every call with bytes that are no message."""

    def service(self, _: Any) -> Any:
        async def babble(requests: AsyncIterator[bytes], _: Any) -> AsyncIterator[bytes]:
            async for _request in requests:
                pass
            yield NO_MESSAGE

        return grpc.stream_stream_rpc_method_handler(babble)


@asynccontextmanager
async def babbling_server() -> AsyncIterator[ServerClient]:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((_Babbling(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with ServerClient(f"127.0.0.1:{port}", SPEC) as client:
            yield client
    finally:
        await server.stop(None)


async def _scan(client: ServerClient) -> None:
    async for _ in client.scan():
        pass


@pytest.mark.parametrize(
    ("call", "method"),
    [
        (lambda client: client.create_table(), "CreateTable"),
        (lambda client: client.put_dense(b"dense"), "PutDense"),
        (lambda client: client.get_dense(), "GetDense"),
        (_scan, "Scan"),
    ],
    ids=["one for one", "one for many", "many for one", "many for one, rows"],
)
async def test_whoever_looks_at_what_cannot_be_read_is_told(
    call: Callable[[ServerClient], Awaitable[Any]], method: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with babbling_server() as client:
        with pytest.raises(Internal, match=f"3 bytes that answer /esd.v1.ParameterServer/{method} are not a message"):
            await call(client)
    assert not [record for record in caplog.records if record.exc_info], "gRPC logs tracebacks of what it cannot read"
