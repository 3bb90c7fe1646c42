"""The health service of gRPC (grpc.health.v1): whether a server, and each of its services, can do its work now."""

# ruff: noqa: N802, ARG002 - names and arguments of the rpcs are the contract's
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grpc_health.v1 import health, health_pb2, health_pb2_grpc

_Status = health_pb2.HealthCheckResponse
_SERVER = ""  # the name under which a server as a whole is asked for


class Health(health.aio.HealthServicer):  # type: ignore[misc,name-defined]  # grpc_health has no type stubs for aio
    """Answers Check, Watch and List. A new one is not serving.

    Args:
        names: full names of the services, such as "esd.v1.ParameterServer".
    """

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        self._names = (_SERVER, *names)

    def add_to(self, server: Any) -> None:
        """Lets a server of grpc.aio serve it."""
        health_pb2_grpc.add_HealthServicer_to_server(self, server)

    async def set_serving(self, serving: bool) -> None:
        """Tells whoever asks or watches whether the services can do their work now."""
        for name in self._names:
            await self.set(name, _Status.SERVING if serving else _Status.NOT_SERVING)

    async def List(self, request: health_pb2.HealthListRequest, context: Any) -> health_pb2.HealthListResponse:
        """Tells the health of every service. grpc_health has this call in its contract and leaves it out here."""
        statuses = {
            name: await self.Check(health_pb2.HealthCheckRequest(service=name), context) for name in self._names
        }
        return health_pb2.HealthListResponse(statuses=statuses)
