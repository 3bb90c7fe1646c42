"""All clients of one table at one parameter server as one, for programs that try every call."""

from __future__ import annotations

from typing import Any, Self

from esd.protos import ps_pb2
from esd.services.clients.checkpoints import CheckpointClient
from esd.services.clients.parameter_server import ParameterServerConnection
from esd.services.clients.rows import RowClient
from esd.services.clients.tables import TableClient
from esd.services.domain.tables import TableSpec


class ServerClient(RowClient, TableClient, CheckpointClient):
    """Makes all calls about a table, over a connection of its own, which takes the options."""

    def __init__(self, address: str, table: TableSpec, **options: Any) -> None:
        self.server = ParameterServerConnection(address, **options)
        RowClient.__init__(self, [self.server], table)
        TableClient.__init__(self, [self.server], table)
        CheckpointClient.__init__(self, self.server, table)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connection."""
        await self.server.close()

    async def create_table(self, **how: Any) -> bool:
        """Creates the table, with the options of the call; whether this call has created it."""
        return await self.server.create_table(self.table, **how)

    async def describe(self) -> ps_pb2.DescribeServerResponse:
        """The state of the server."""
        return await self.server.describe()
