"""The transfers of a plan: rows and gradients leave the caches, and missing rows enter them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

from esd.services.clients.frame import Frame
from esd.services.domain.ids import parts_of_tables
from esd.services.domain.plans import FlushPlan, IterationPlan, Membership, Transfers
from esd.services.domain.reports import TransferCounts
from esd.services.runtime.tasks import all_of
from esd.services.runtime.tracing import Span
from esd.worker.service.inbox import Arrival
from esd.worker.service.parameter_servers import ParameterServers
from esd.worker.service.peers import Peers
from esd.worker.service.table_mover import TableMover, TableTransfers


class RowMover:
    """Moves rows between the caches, the parameter servers, and other workers.

    Args:
        tables: by number, each with its cache and its servers.
        servers: all parameter servers of the job.
        peers: the other workers.
        tasks: the group that ends when a transfer fails, even if no task waits for the transfer.
        membership: of this worker; the first member also has the servers forget rows.
    """

    def __init__(
        self,
        tables: Sequence[TableMover],
        servers: ParameterServers,
        peers: Peers,
        tasks: asyncio.TaskGroup,
        membership: Membership,
    ) -> None:
        self.tables = tables
        self.servers = servers
        self.peers = peers
        self.tasks = tasks
        self._membership = membership

    async def flush(self, plan: FlushPlan) -> TransferCounts:
        """Pushes all rows and gradients of a flush."""
        sizes = await all_of(
            table.flush(rows, gradients)
            for table, rows, gradients in zip(
                self.tables,
                plan.rows.by_table(len(self.tables)),
                plan.gradients.by_table(len(self.tables)),
                strict=True,
            )
        )
        return TransferCounts(flush_push=len(plan.rows) + len(plan.gradients), bytes_pushed=sum(sizes))

    def by_table(self, rows: Transfers) -> Iterator[tuple[TableMover, Transfers]]:
        """Yields every table with its rows."""
        yield from zip(self.tables, rows.by_table(len(self.tables)), strict=True)

    def reduced_bytes(self, floats: int) -> int:
        """Returns the bytes that this worker sends to sum `floats` values of gradients of replicated rows."""
        return self._membership.job.dense_sum.sent_bytes(floats, len(self._membership.members))

    async def forget(self, plan: IterationPlan) -> None:
        """Has the parameter servers remove the plan's forgotten rows, if this worker leads.

        The caller has trained the plan. All pushes of these rows belong to earlier plans, and every worker waits for
        the pushes of a plan before it takes part in the next sum, so none of them is on its way any more.
        """
        if not (self._membership.leads and len(plan.forgotten)):
            return
        parts = parts_of_tables(plan.forgotten, len(self.tables))
        await all_of(
            table.servers.forget(plan.forgotten[part], plan.forgotten_below, epoch=table.epoch)
            for table, part in zip(self.tables, parts, strict=True)
        )

    def end_if_failed(self, frames: Sequence[Frame]) -> None:
        """Ends the group of tasks when a frame fails."""
        for frame in frames:
            for future in (frame.stored, frame.pulled):
                future.add_done_callback(self._end_if_failed)

    def _end_if_failed(self, transfer: asyncio.Future[Any]) -> None:
        if not transfer.cancelled() and (error := transfer.exception()) is not None:
            failing = _fail(error)
            try:
                self.tasks.create_task(failing)
            except RuntimeError:  # the group has ended
                failing.close()


class IterationTransfers:
    """The transfers of one iteration: start the early half, start the late half, wait for both.

    The early half may move while the previous iteration trains; the late half overtakes its unsent frames. Workers
    cannot wait for each other in a circle: the push for which a pull waits belongs to the same half of the same
    iteration, or to an earlier one, and no push waits for a pull.

    Args:
        plan: of the iteration.
        mover: moves the rows.
        span: of the iteration; None unless it is traced.

    Attributes:
        plan: as above.
        span: as above.
    """

    def __init__(self, plan: IterationPlan, mover: RowMover, span: Span | None = None) -> None:
        self.plan = plan
        self.span = span
        trace_parent = "" if span is None else span.context
        self._mover = mover
        moves = plan.moves_by_table(len(mover.tables))
        self._tables = [
            TableTransfers(each, table, plan.iteration, trace_parent)
            for each, table in zip(moves, mover.tables, strict=True)
        ]
        self._arrival: Arrival | None = None

    async def start(self, *, early: bool) -> None:
        """Starts the pushes and pulls of one half.

        On return all pushed rows have been copied from the caches, and their slots may be overwritten.
        """
        if early:
            expected = [table.expected() for table in self._tables] if len(self.plan.direct_pulls) else []
            self._arrival = await self._mover.peers.inbox.expect(self.plan.iteration, expected)
        for table in self._tables:
            self._mover.end_if_failed(await table.start(early=early))

    async def pulled(self) -> None:
        """Waits for the pulls, and for the rows of other workers."""
        for frame in self._frames():
            await frame.pulled
        if self._arrival is not None:
            await self._arrival.complete()

    def write(self) -> None:
        """Copies the pulled rows into their slots, on the training device."""
        for table in self._tables:
            table.write()

    async def stored(self) -> None:
        """Waits until all pushes of the plan are durable, or accepted by the workers that own the rows now."""
        for frame in (*self._frames(), *self._delivered()):
            await frame.stored

    async def finished(self, reduced_floats: int) -> TransferCounts:
        """Ends the plan after its training: waits until all its pushes are durable, and returns the counts.

        Args:
            reduced_floats: number of values of replicated rows' gradients that its training has summed.
        """
        plan = self.plan
        await self._mover.forget(plan)
        await self.stored()
        delivered = sum(frame.push_bytes for frame in self._delivered())
        arrived = self._arrival.bytes if self._arrival is not None else 0
        return TransferCounts(
            miss_pull=len(plan.pulls),
            update_push=len(plan.update_rows) + len(plan.update_gradients),
            evict_push=len(plan.evict_rows) + len(plan.evict_gradients),
            bytes_pulled=arrived + sum(frame.pull_bytes for frame in self._frames()),
            bytes_pushed=delivered + sum(frame.push_bytes for frame in self._frames()),
            bytes_reduced=self._mover.reduced_bytes(reduced_floats),
            direct_push=len(plan.direct_pushes),
            bytes_direct=delivered,
            initial_pull=sum(frame.initial_rows for frame in self._frames()),
        )

    def _frames(self) -> Iterator[Frame]:
        for table in self._tables:
            yield from table.frames

    def _delivered(self) -> Iterator[Frame]:
        for table in self._tables:
            yield from table.delivered


async def _fail(error: BaseException) -> None:
    raise error
