"""The health service of gRPC (grpc.health.v1): whether a server, and each of its services, is able to serve."""

# ruff: noqa: N802, ARG002 - names and arguments of the rpcs are the contract's
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grpc_health.v1 import health, health_pb2, health_pb2_grpc

_Status = health_pb2.HealthCheckResponse
_SERVER = ""  # the name of the server as a whole


class Health(health.aio.HealthServicer):  # type: ignore[misc,name-defined]  # grpc_health has no type stubs for aio
    """Answers Check, Watch and List. A new instance reports NOT_SERVING.

    Args:
        names: full names of the services, such as "esd.v1.ParameterServer".
    """

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        self._names = (_SERVER, *names)

    def add_to(self, server: Any) -> None:
        """Registers the service with a grpc.aio server."""
        health_pb2_grpc.add_HealthServicer_to_server(self, server)

    async def set_serving(self, serving: bool) -> None:
        """Sets the status that checks and watches report."""
        for name in self._names:
            await self.set(name, _Status.SERVING if serving else _Status.NOT_SERVING)

    async def List(self, request: health_pb2.HealthListRequest, context: Any) -> health_pb2.HealthListResponse:
        """Returns the health of every service. grpc_health declares this call and does not implement it for aio."""
        statuses = {
            name: await self.Check(health_pb2.HealthCheckRequest(service=name), context) for name in self._names
        }
        return health_pb2.HealthListResponse(statuses=statuses)
