"""The deadline of every call with one answer, and the error of a call that missed it.

The deadlines of gRPC's service configuration end calls one to two seconds too early (grpc/grpc, issue 40633). gRPC's
own error only states that a deadline was exceeded: not which one, nor whether there was a connection. Its error for an
unknown call does not name the address of the service, either.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc

from esd.services.domain.errors import DeadlineExceeded
from esd.services.runtime.proxies import through_proxy
from esd.services.runtime.status import NO_AGREEMENT

READY = grpc.ChannelConnectivity.READY
TRANSIENT_FAILURE = grpc.ChannelConnectivity.TRANSIENT_FAILURE


class Deadline:
    """Sets the deadline of a channel's calls, and explains a missed deadline by the state of the connection.

    If the service does not know a call, the error names the address, because it may belong to another service.

    Args:
        address: `host:port` of the channel.
        seconds: the deadline of a call that sets no timeout.

    Attributes:
        channel: the channel of the calls; set it before the first one.
    """

    def __init__(self, address: str, seconds: float) -> None:
        self.channel: grpc.aio.Channel | None = None
        self._address = address
        self._seconds = seconds

    @property
    def interceptors(self) -> Sequence[Any]:
        """The interceptors of the channel, one for each kind of call; the stubs have another type."""
        return _OneRequest(self), _ManyRequests(self)

    async def call(self, continuation: Any, details: Any, request: Any) -> Any:
        """Makes a call with a request, or with an iterator of requests."""
        seconds = self._seconds if details.timeout is None else details.timeout
        call = await continuation(details._replace(timeout=seconds), request)
        try:
            code = await call.code()
        except asyncio.CancelledError:
            call.cancel()
            raise
        trailing = await call.trailing_metadata()
        proxy = through_proxy(self._address)
        if code is grpc.StatusCode.DEADLINE_EXCEEDED and not trailing:  # with metadata it is the service's own deadline
            error = self._missed(seconds) + proxy
        elif code is grpc.StatusCode.UNAVAILABLE and not trailing and proxy:
            error = f"{await call.details()}{proxy}"
        elif code is grpc.StatusCode.UNIMPLEMENTED:
            error = self._unknown(details.method)
        else:
            return call
        raise grpc.aio.AioRpcError(code, await call.initial_metadata(), trailing, error, error)

    def _unknown(self, method: str | bytes) -> str:
        _, service, call = (method.decode() if isinstance(method, bytes) else method).split("/")
        return (
            f"the service at {self._address} is not a {service.rpartition('.')[2]}, since it has no call {call}: this "
            "is the address of another service, or its release is another"
        )

    def _missed(self, seconds: float) -> str:
        state = None if self.channel is None else self.channel.get_state()
        if state is READY:
            return f"{self._address} has not answered within {seconds:g} s"
        if state is TRANSIENT_FAILURE:
            return (
                f"no connection to {self._address} within {seconds:g} s: it refuses or closes connections; the service "
                f"may be down, or {NO_AGREEMENT}"
            )
        return (
            f"no connection to {self._address} within {seconds:g} s: no answer from there; the address may be wrong, a "
            "firewall may be in between, or the service hangs"
        )


async def each_within(stream: Any, seconds: float) -> AsyncIterator[Any]:
    """Yields the messages of an answer of any length, as long as each comes in time.

    Args:
        stream: the call, which is cancelled when a message is late.
        seconds: the longest time to wait for each message.

    Raises:
        DeadlineExceeded: a message is late.
    """
    while True:
        try:
            async with asyncio.timeout(seconds):
                message = await stream.read()
        except TimeoutError:
            raise DeadlineExceeded(f"the next part of an answer has not come within {seconds:g} s") from None
        if message is grpc.aio.EOF:  # type: ignore[attr-defined]  # missing in the stubs only
            return
        yield message


class _OneRequest(grpc.aio.UnaryUnaryClientInterceptor):  # type: ignore[type-arg]  # generic in the stubs only
    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline

    async def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return await self._deadline.call(continuation, client_call_details, request)


class _ManyRequests(grpc.aio.StreamUnaryClientInterceptor):  # type: ignore[type-arg]  # likewise
    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline

    async def intercept_stream_unary(self, continuation: Any, client_call_details: Any, request_iterator: Any) -> Any:
        return await self._deadline.call(continuation, client_call_details, request_iterator)
