"""A peer between two services that forwards their messages, and may add messages or change them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Protocol

import grpc

from esd.services.runtime.channel import channel


class Meddling(Protocol):
    """Changes the messages of one call."""

    def up(self, message: bytes) -> Iterable[bytes]:
        """Returns the messages that the server gets in place of a message of the client."""

    def down(self, message: bytes) -> Iterable[bytes]:
        """Returns the messages that the client gets in place of a message of the server."""


class Honest:
    """Forwards all messages unchanged."""

    def up(self, message: bytes) -> Iterable[bytes]:
        """Returns the message."""
        return (message,)

    def down(self, message: bytes) -> Iterable[bytes]:
        """Returns the message."""
        return (message,)


@asynccontextmanager
async def meddler(target: str, meddling: Callable[[str], Meddling]) -> AsyncIterator[str]:
    """Serves the same methods as the service at `target`, and returns the address.

    Args:
        target: `host:port`.
        meddling: makes the `Meddling` of a call from the path of its method.
    """
    async with AsyncExitStack() as stack:
        there = await stack.enter_async_context(channel(target))
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((_Calls(there, meddling),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        stack.push_async_callback(server.stop, 0)
        yield f"127.0.0.1:{port}"


class _Calls(grpc.GenericRpcHandler):  # type: ignore[type-arg] # it is generic in the stubs only
    """Handles every call as two streams of bytes; a call with single messages is one, too."""

    def __init__(self, there: grpc.aio.Channel, meddling: Callable[[str], Meddling]) -> None:
        self._there = there
        self._meddling = meddling

    def service(self, details: Any) -> Any:
        async def carry(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
            meddling = self._meddling(details.method)

            async def up() -> AsyncIterator[bytes]:
                async for request in requests:
                    for message in meddling.up(request):
                        yield message

            call = self._there.stream_stream(details.method, None, None)(up(), timeout=context.time_remaining())
            try:
                async for answer in call:
                    for message in meddling.down(answer):
                        yield message
            except grpc.aio.AioRpcError as error:
                await context.abort(error.code(), error.details() or "", tuple(error.trailing_metadata() or ()))
            finally:
                call.cancel()

        return grpc.stream_stream_rpc_method_handler(carry)
