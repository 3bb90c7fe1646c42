"""The client of a whole table, for programs that read a model: look-up, scan, changes, dense parameters."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence

import numpy as np
from numpy.typing import NDArray

from esd.protos import ps_pb2
from esd.services.clients.parameter_server import ParameterServerConnection
from esd.services.domain.changes import ChangedRows
from esd.services.domain.errors import Internal
from esd.services.domain.ids import shard_of
from esd.services.domain.rows import RowBlock
from esd.services.domain.tables import TableSpec
from esd.services.runtime.deadline import each_within
from esd.services.runtime.status import domain_errors
from esd.services.runtime.tasks import all_of
from esd.services.wire.changes import decode_changes
from esd.services.wire.rows import decode_rows, decode_values, encode_lookup, payload_bytes
from esd.services.wire.tables import encode_table


class TableClient:
    """Reads a table, also while workers train it.

    Args:
        servers: connections to all servers of the table, in shard order.
        table: the table.

    Attributes:
        table: as above.

    Example:
        Rows that were never trained have version 0 and their initial values:

        >>> table = esd.TableSpec("items", dimension=16, optimizer=esd.OptimizerSpec(), seed=0, init_scale=0.01)
        >>> async def look_up(ids):
        ...     async with esd.ParameterServerConnection("127.0.0.1:50052") as server:
        ...         await server.create_table(table)
        ...         return await esd.TableClient([server], table).look_up(ids)
        >>> versions, values = asyncio.run(look_up(np.array([7, 9], np.uint64)))
        >>> versions.tolist(), values.shape
        ([0, 0], (2, 16))
    """

    def __init__(self, servers: Sequence[ParameterServerConnection], table: TableSpec) -> None:
        self.table = table
        self._servers = servers

    async def look_up(
        self, ids: NDArray[np.uint64], *, checkpoint: int = 0
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Reads the values of rows; a row that was never trained has its initial values.

        Args:
            ids: uint64 [r].
            checkpoint: a kept checkpoint, of which the values are; 0: the latest values.

        Returns:
            Versions, int64 [r], 0 for rows that were never trained; and values, float32 [r, D].

        Raises:
            FailedPrecondition, NotFound: the checkpoint is not kept.
        """
        versions = np.empty(len(ids), np.int64)
        values = np.empty((len(ids), self.table.dimension), np.float32)
        owners = shard_of(ids, len(self._servers))

        async def read(shard: int) -> None:
            places = np.flatnonzero(owners == shard)
            done = 0
            async for part in self._values(self._servers[shard], ids[places], checkpoint):
                at = places[done : done + len(part[0])]
                versions[at], values[at] = part
                done += len(at)
            if done != len(places):
                raise Internal(f"a look-up of {len(places)} rows ended after {done}")

        await all_of(map(read, range(len(self._servers))))
        return versions, values

    async def scan(self) -> AsyncIterator[RowBlock]:
        """Yields every stored row with its optimizer state, server by server, in unspecified order.

        Each part has the connection's timeout.
        """
        request = ps_pb2.ScanRequest(table=self.table.name)
        for server in self._servers:
            with domain_errors():
                async for chunk in each_within(server.stub.Scan(request), server.timeout):
                    yield decode_rows(chunk.rows, self.table)

    async def changes(self, shard: int, position: bytes = b"", *, pause: float = 0.25) -> AsyncGenerator[ChangedRows]:
        """Yields the rows that change at one server, in rounds, without end.

        Without a position, or if the server does not have the changes since then any more, a round begins anew: it has
        all stored rows of the server, and any other row has its initial values.

        Args:
            shard: number of the server.
            position: of the last round that the caller has.
            pause: seconds from one round to the next, 0.05 to 10.

        Raises:
            FailedPrecondition: the table has another specification, or the server is of another shard.
            DeadlineExceeded: no part of a round has come for the connection's timeout and a pause.
        """
        server = self._servers[shard]
        request = ps_pb2.ChangesRequest(
            table=encode_table(self.table),
            shard=shard,
            shards=len(self._servers),
            position=position,
            pause_ms=round(1000 * pause),
        )
        with domain_errors():
            async for message in each_within(server.stub.Changes(request), server.timeout + pause):
                yield decode_changes(message, self.table)

    async def get_dense(self, *, checkpoint: int = 0) -> bytes:
        """Reads the dense parameters from the first server; see DenseParameters.

        Args:
            checkpoint: a checkpoint, of which the part `dense` is read; 0: the parameters stored last.

        Raises:
            NotFound: no dense parameters are stored, or the checkpoint does not exist.
        """
        server = self._servers[0]
        request = ps_pb2.GetDenseRequest(table=self.table.name, checkpoint=checkpoint)
        return await server.download(server.stub.GetDense(request, timeout=server.timeout))

    async def _values(
        self, server: ParameterServerConnection, ids: NDArray[np.uint64], checkpoint: int
    ) -> AsyncIterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """Yields versions and values from one server, in the order of the ids."""
        timeout = server.traffic.deadline(payload_bytes(self.table, len(ids)), server.timeout)
        with domain_errors():
            async for chunk in server.stub.Lookup(encode_lookup(self.table.name, ids, checkpoint), timeout=timeout):
                yield decode_values(chunk, self.table)
