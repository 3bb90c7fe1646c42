"""The client of a table's rows, wherever their shard is: a worker's client of the parameter servers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esd.services.clients.frame import Frame
from esd.services.clients.parameter_server import ParameterServerConnection
from esd.services.domain.ids import shard_of
from esd.services.domain.parcels import Parcel, Pulls
from esd.services.domain.tables import TableSpec
from esd.services.runtime.status import domain_errors
from esd.services.runtime.tasks import all_of
from esd.services.wire.rows import encode_forget

Patiently = Callable[[Callable[[], Awaitable[Any]]], Coroutine[Any, Any, Any]]


async def _once(call: Callable[[], Awaitable[Any]]) -> Any:
    return await call()


@dataclass(frozen=True, slots=True)
class PushAnswer:
    """The result of a push.

    Attributes:
        stored: number of rows and gradients that were new to the servers.
        already_known: number of repeated rows and gradients, which the servers have ignored.
        bytes_sent: bytes of the messages.
    """

    stored: int
    already_known: int
    bytes_sent: int


class RowClient:
    """Pulls and pushes rows of a table.

    Args:
        servers: connections to all servers of the table, in shard order.
        table: the table as it was created: its seed and scale make the pulled rows that were never trained.
        patiently: makes the calls of `create` and `forget`, and may repeat them; None: each call is made once.

    Attributes:
        table: as above.

    Example:
        >>> table = esd.TableSpec("items", dimension=16, optimizer=esd.OptimizerSpec(), seed=0, init_scale=0.01)
        >>> rows = np.empty((2, table.row_width), np.float32)
        >>> async def pull(ids, versions):
        ...     async with esd.ParameterServerConnection("127.0.0.1:50052") as server:
        ...         await server.create_table(table)
        ...         await esd.RowClient([server], table).pull(ids, versions, rows)
        >>> asyncio.run(pull(np.array([7, 9], np.uint64), np.array([0, 0])))
        >>> bool((abs(rows) <= 0.01).all())
        True
    """

    def __init__(
        self, servers: Sequence[ParameterServerConnection], table: TableSpec, patiently: Patiently | None = None
    ) -> None:
        self.table = table
        self._servers = servers
        self._patiently = patiently or _once

    async def create(self, claimant: bytes) -> None:
        """Creates the table at every server where it does not exist, and claims it unless `claimant` is empty.

        The first server is asked before the others, so that one of several jobs gets the whole table.

        Raises:
            FailedPrecondition: the table exists with another specification; its training has ended; or another job
                holds it.
        """
        first, *others = (
            partial(server.create_table, self.table, to_train=True, claimant=claimant) for server in self._servers
        )
        await self._patiently(first)
        await all_of(map(self._patiently, others))

    def exchange(
        self,
        parcel: Parcel,
        rows: NDArray[np.float32] | None = None,
        *,
        epoch: int = 0,
        urgent: bool = False,
        trace_parent: str = "",
    ) -> list[Frame]:
        """Queues a parcel for the servers of its ids, and returns at once: its pushes have been copied into frames.

        Args:
            parcel: of this table.
            rows: float32 [.., W], the array that receives the pulled rows; None if the parcel pulls none.
            epoch: of the plan.
            urgent: whether the frames overtake unsent frames that are not urgent.
            trace_parent: the worker's span of the iteration, as W3C's traceparent; empty: there is none.

        Returns:
            The frames of the parcel, whose futures give the results.
        """
        return [
            frame
            for shard, part in parcel.by_shard(len(self._servers))
            for frame in self._servers[shard].exchange.send(
                part, self.table, rows, epoch=epoch, urgent=urgent, trace_parent=trace_parent
            )
        ]

    async def carry(self, parcel: Parcel, rows: NDArray[np.float32] | None = None, *, epoch: int = 0) -> list[Frame]:
        """Exchanges a parcel of any size with the servers of its ids, and waits for the results.

        Args:
            parcel: of this table.
            rows: float32 [.., W], the array that receives the pulled rows; None if the parcel pulls none.
            epoch: of the plan.

        Returns:
            The frames of the parcel, all answered.

        Raises:
            StaleVersion: a pulled row has a later version.
            DeadlineExceeded: a pulled row did not reach its version in time.
            FailedPrecondition: a gradient skips a version, or the contributors of a row disagree.
        """
        frames = await all_of(
            self._servers[shard].exchange.carry(part, self.table, rows, epoch=epoch)
            for shard, part in parcel.by_shard(len(self._servers))
        )
        return [frame for of_shard in frames for frame in of_shard]

    async def pull(
        self,
        ids: NDArray[np.uint64],
        versions: NDArray[np.int64],
        rows: NDArray[np.float32],
        places: NDArray[np.int64] | None = None,
        *,
        epoch: int = 0,
    ) -> int:
        """Pulls the rows of `ids`, at exactly `versions`, into `rows[places]`.

        Args:
            ids: uint64 [r], distinct.
            versions: int64 [r].
            rows: float32 [.., W], written to.
            places: int64 [r]; None: 0 to r - 1.
            epoch: of the plan.

        Returns:
            The bytes moved: of the pulls, and of the answers.

        Raises:
            StaleVersion: a row has a later version.
            DeadlineExceeded: a row did not reach its version in time.
        """
        pulls = Pulls(ids, versions, np.arange(len(ids)) if places is None else places)
        frames = await self.carry(Parcel(pulls=pulls), rows, epoch=epoch)
        return sum(frame.pull_bytes for frame in frames)

    async def push(self, parcel: Parcel, *, epoch: int = 0) -> PushAnswer:
        """Stores the rows and gradients of a parcel durably.

        Raises:
            FailedPrecondition: a gradient skips a version, or the contributors of a row disagree.
        """
        frames = await self.carry(parcel, epoch=epoch)
        stored = [frame.stored.result() for frame in frames]
        return PushAnswer(
            sum(result.new for result in stored),
            sum(result.already_known for result in stored),
            sum(frame.push_bytes for frame in frames),
        )

    async def forget(self, ids: NDArray[np.uint64], below: int, *, epoch: int = 0) -> int:
        """Removes the rows whose version is below `below` from the table.

        Args:
            ids: uint64 [r], distinct.
            below: the version with which later lives begin (esd.services.domain.versions).
            epoch: of the plan.

        Returns:
            The number of removed rows that were stored.
        """
        owners = shard_of(ids, len(self._servers))
        parts = [ids[owners == shard] for shard in range(len(self._servers))]
        removed = await all_of(
            self._patiently(partial(self._forget, server, part, below, epoch))
            for server, part in zip(self._servers, parts, strict=True)
            if len(part)
        )
        return sum(removed)

    async def _forget(self, server: ParameterServerConnection, ids: NDArray[np.uint64], below: int, epoch: int) -> int:
        request = encode_forget(self.table.name, ids, below, epoch=epoch)
        size = request.ByteSize()
        await server.traffic.send(size)
        server.traffic.sent(rows=size)
        with domain_errors():
            timeout = server.traffic.deadline(size, server.timeout)
            return int((await server.stub.Forget(request, timeout=timeout)).rows)
