"""The deadline of every call with one request and one answer, and the error of a call that missed it.

The deadlines of gRPC's service configuration end calls one to two seconds too early (grpc/grpc, issue 40633). gRPC's
own error only states that a deadline was exceeded: not which one, nor whether there was a connection. Its error for an
unknown call does not name the address of the service, either.
"""

from __future__ import annotations

import asyncio
from typing import Any

import grpc

from esd.services.runtime.proxies import through_proxy
from esd.services.runtime.status import NO_AGREEMENT

READY = grpc.ChannelConnectivity.READY
TRANSIENT_FAILURE = grpc.ChannelConnectivity.TRANSIENT_FAILURE


class Deadline(grpc.aio.UnaryUnaryClientInterceptor):  # type: ignore[type-arg]  # generic in the stubs only
    """Sets the deadline of a channel's calls, and explains a missed deadline by the state of the connection.

    If the service does not know a call, the error names the address, because it may belong to another service.

    Args:
        address: `host:port` of the channel.
        seconds: the deadline of a call that sets no shorter timeout.

    Attributes:
        channel: the channel of the calls; set it before the first one.
    """

    def __init__(self, address: str, seconds: float) -> None:
        self.channel: grpc.aio.Channel | None = None
        self._address = address
        self._seconds = seconds

    async def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        """Makes a call; the name is gRPC's."""
        asked = client_call_details.timeout
        seconds = self._seconds if asked is None else min(asked, self._seconds)
        call = await continuation(client_call_details._replace(timeout=seconds), request)
        try:
            code = await call.code()
        except asyncio.CancelledError:
            call.cancel()
            raise
        trailing = await call.trailing_metadata()
        proxy = through_proxy(self._address)
        if code is grpc.StatusCode.DEADLINE_EXCEEDED and not trailing:  # with metadata it is the service's own deadline
            details = self._missed(seconds) + proxy
        elif code is grpc.StatusCode.UNAVAILABLE and not trailing and proxy:
            details = f"{await call.details()}{proxy}"
        elif code is grpc.StatusCode.UNIMPLEMENTED:
            details = self._unknown(client_call_details.method)
        else:
            return call
        raise grpc.aio.AioRpcError(code, await call.initial_metadata(), trailing, details, details)

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
