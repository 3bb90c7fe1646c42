"""The rows of one table on the move between a worker's cache, the parameter servers, and other workers."""

from __future__ import annotations

from concurrent.futures import Executor
from functools import partial

import numpy as np
from numpy.typing import NDArray

from esd.services.clients.frames import Frame
from esd.services.domain.frames import NO_PULLS, Floats, GradientPush, Parcel, Pulls, RowPush
from esd.services.domain.jobs import JobSpec
from esd.services.domain.plans import NO_TRANSFERS, DirectRows, GradientTransfers, TableMoves, Transfers
from esd.services.runtime.tasks import run_in
from esd.worker.service.inbox import ExpectedRows
from esd.worker.service.peers import Peers
from esd.worker.service.table_servers import TableServers
from esd.worker.training.rows import RowCache


class TableMover:
    """Moves the rows of a table between its cache and its parameter servers, and to other workers.

    Args:
        cache: the worker's rows of the table.
        servers: the table, wherever its shards are.
        peers: the other workers.
        job: says at which rate rows are trained, which travels with partial gradients.
        worker: slot of this worker.
        reading_thread: copies rows from the training device to the host, while another thread trains.
    """

    def __init__(
        self,
        cache: RowCache,
        servers: TableServers,
        peers: Peers,
        job: JobSpec,
        worker: int,
        reading_thread: Executor,
    ) -> None:
        self.cache = cache
        self.servers = servers
        self._peers = peers
        self._job = job
        self._worker = worker
        self._reading_thread = reading_thread

    async def flush(self, rows: Transfers, gradients: GradientTransfers) -> int:
        """Pushes rows and gradients, and returns the bytes sent when all of it is durable. Nothing trains meanwhile."""
        sent = await self.servers.push(await self._parcel(rows, gradients, NO_PULLS))
        self.cache.empty_gathered(gradients.rows.slots)
        return sent

    async def load(self, rows: Transfers) -> NDArray[np.float32]:
        """Pulls rows at the versions that are named, float32 [r, W]."""
        pulled = self.cache.staging(len(rows))
        await self.servers.pull(rows.ids, rows.versions, pulled)
        return pulled

    async def exchange(
        self, rows: Transfers, gradients: GradientTransfers, pulls: Pulls, staging: NDArray[np.float32], *, urgent: bool
    ) -> list[Frame]:
        """Sends what is to be pushed and pulled at once; on return everything that is pushed has been read.

        Args:
            rows: to push.
            gradients: to push.
            pulls: whose rows go to `staging`.
            staging: float32 [r, W].
            urgent: it goes before what is not.
        """
        return self.servers.exchange(await self._parcel(rows, gradients, pulls), staging, urgent=urgent)

    async def deliver(self, rows: Transfers, peers: NDArray[np.uint32], iteration: int, *, urgent: bool) -> list[Frame]:
        """Sends rows straight to the workers that train them next; on return they have been read.

        Args:
            rows: owned here until now.
            peers: uint32 [r], the slot of the worker that gets each.
            iteration: in which they are trained there.
            urgent: they go before what is not.
        """
        values = await self._floats(rows.slots, self.cache.width)
        push = RowPush(rows.ids, rows.versions, values)
        return [
            frame
            for slot in np.unique(peers).tolist()
            for frame in self._peers.deliver(
                slot, self.servers.spec, push[np.flatnonzero(peers == slot)], iteration, urgent=urgent
            )
        ]

    async def _parcel(self, rows: Transfers, gradients: GradientTransfers, pulls: Pulls) -> Parcel:
        split, spec = gradients.rows, self.servers.spec
        return Parcel(
            RowPush(rows.ids, rows.versions, await self._floats(rows.slots, self.cache.width)),
            GradientPush(
                split.ids,
                split.versions,
                gradients.contributors,
                gradients.steps.astype(np.uint32),
                self._job.row_rates(spec, gradients.steps),
                await self._floats(split.slots, spec.dimension, gradients=True),
                self._worker,
            ),
            pulls,
        )

    async def _floats(self, slots: NDArray[np.uint32], columns: int, *, gradients: bool = False) -> Floats:
        """Returns where the first floats of these slots' rows, or gradients, lie in the memory of the host."""
        cache = self.cache
        if cache.host_rows is not None:
            return Floats(cache.gradients.numpy() if gradients else cache.host_rows, slots)
        if not len(slots):
            return Floats(np.empty((0, columns), np.float32))
        return Floats(await run_in(self._reading_thread, partial(cache.read, slots, columns, gradients=gradients)))


class TableTransfers:
    """Carries out what a plan moves of one table, one half after the other.

    Args:
        moves: of the table.
        mover: moves its rows.
        iteration: of the plan.

    Attributes:
        frames: what has been sent so far to parameter servers.
        delivered: what has been sent so far to other workers.
    """

    def __init__(self, moves: TableMoves, mover: TableMover, iteration: int) -> None:
        self.frames: list[Frame] = []
        self.delivered: list[Frame] = []
        self._moves = moves
        self._mover = mover
        self._iteration = iteration
        update_rows, self._direct_rows = _apart(moves.update_rows, moves.direct_pushes)
        self._rows = update_rows.joined(moves.evict_rows)
        self._gradients = moves.update_gradients.joined(moves.evict_gradients)
        # Rows come whole, or without their optimizer state: those that do lie behind the others, and have a state of 0.
        self._order = np.argsort(moves.stateless_pulls, kind="stable")
        self._staging = mover.cache.staging(len(moves.pulls))

    def expected(self) -> ExpectedRows:
        """Returns the rows that come from other workers, with their places."""
        direct = self._moves.direct_pulls.places
        return ExpectedRows(self._moves.pulls.at(direct), self._staging, np.argsort(self._order)[direct])

    async def start(self, *, early: bool) -> list[Frame]:
        """Starts what moves in one half, and returns the frames that carry it."""
        rows, gradients = self._rows.half(early=early), self._gradients.half(early=early)
        pulls = self._pulls(early=early)
        sent: list[Frame] = []
        if len(rows) or len(gradients) or len(pulls):
            sent = await self._mover.exchange(rows, gradients, pulls, self._staging, urgent=not early)
        delivered = await self._deliver(early=early) if len(self._direct_rows) else []
        self.frames += sent
        self.delivered += delivered
        return sent + delivered

    def write(self) -> None:
        """Puts the rows that have come into their slots, when all that was gathered there has been pushed."""
        moves, cache = self._moves, self._mover.cache
        cache.write(moves.pulls.slots[self._order], self._staging)
        for slots in (moves.update_gradients.rows.slots, moves.evict_gradients.rows.slots, moves.pulls.slots):
            cache.empty_gathered(slots)

    async def _deliver(self, *, early: bool) -> list[Frame]:
        rows = self._direct_rows.half(early=early)
        if not len(rows):
            return []
        first = self._direct_rows.early
        peers = self._moves.direct_pushes.peers[:first] if early else self._moves.direct_pushes.peers[first:]
        return await self._mover.deliver(rows, peers, self._iteration, urgent=not early)

    def _pulls(self, *, early: bool) -> Pulls:
        """Returns what of one half is asked of parameter servers."""
        moves, order = self._moves, self._order
        asked = order < moves.pulls.early if early else order >= moves.pulls.early
        if len(moves.direct_pulls):
            asked &= ~np.isin(order, moves.direct_pulls.places)
        places = np.flatnonzero(asked)
        rows = order[places]
        stateless = int(np.count_nonzero(moves.stateless_pulls[rows]))
        return Pulls(moves.pulls.ids[rows], moves.pulls.versions[rows], places, stateless)


def _apart(rows: Transfers, direct: DirectRows) -> tuple[Transfers, Transfers]:
    """Returns the rows that go to parameter servers, and those that go to other workers."""
    if not len(direct):
        return rows, NO_TRANSFERS
    return rows.at(np.delete(np.arange(len(rows)), direct.places)), rows.at(direct.places)
