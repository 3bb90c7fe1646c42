"""The time within which every call with one request and one answer ends, and what it is told when that is over.

The deadlines of gRPC's service configuration end calls one to two seconds too early (grpc/grpc, issue 40633). And all
that gRPC says of one that is over is that it is: not whose it was, nor whether anybody was there. Nor does it say at
which address a service answered that does not know the call.
"""

from __future__ import annotations

import asyncio
from typing import Any

import grpc

from esd.services.runtime.status import NO_AGREEMENT

READY = grpc.ChannelConnectivity.READY
TRANSIENT_FAILURE = grpc.ChannelConnectivity.TRANSIENT_FAILURE


class Deadline(grpc.aio.UnaryUnaryClientInterceptor):  # type: ignore[type-arg]  # generic in the stubs only
    """Gives the calls of one channel their deadline, and says of those that missed it what was with the connection.

    Of those that went to a service of another kind it says to which address they went.

    Args:
        address: `host:port` to which the channel goes.
        seconds: within which a call ends that asks for no shorter time.

    Attributes:
        channel: whose calls these are; set it before the first one.
    """

    def __init__(self, address: str, seconds: float) -> None:
        self.channel: grpc.aio.Channel | None = None
        self._address = address
        self._seconds = seconds

    async def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        """Makes a call. gRPC asks for it by this name."""
        asked = client_call_details.timeout
        seconds = self._seconds if asked is None else min(asked, self._seconds)
        call = await continuation(client_call_details._replace(timeout=seconds), request)
        try:
            code = await call.code()
        except asyncio.CancelledError:
            call.cancel()
            raise
        trailing = await call.trailing_metadata()
        if code is grpc.StatusCode.DEADLINE_EXCEEDED and not trailing:  # what a service has sent is its own deadline
            details = self._missed(seconds)
        elif code is grpc.StatusCode.UNIMPLEMENTED:
            details = self._unknown(client_call_details.method)
        else:
            return call
        raise grpc.aio.AioRpcError(code, await call.initial_metadata(), trailing, details, details)

    def _unknown(self, method: str | bytes) -> str:
        _, service, call = (method.decode() if isinstance(method, bytes) else method).split("/")
        return (
            f"the service at {self._address} is no {service.rpartition('.')[2]}, since it has no call {call}: this is "
            "the address of another service, or its release is another"
        )

    def _missed(self, seconds: float) -> str:
        state = None if self.channel is None else self.channel.get_state()
        if state is READY:
            return f"{self._address} has not answered within {seconds:g} s"
        if state is TRANSIENT_FAILURE:
            return (
                f"no connection to {self._address} within {seconds:g} s: it refuses or closes connections; nobody may "
                f"serve there, or {NO_AGREEMENT}"
            )
        return (
            f"no connection to {self._address} within {seconds:g} s: nobody answers there; the address may be wrong, a "
            "firewall may be in between, or the service hangs"
        )
