"""The moves of one table's rows between a worker's cache, the parameter servers, and other workers."""

from __future__ import annotations

from concurrent.futures import Executor
from functools import partial

import numpy as np
from numpy.typing import NDArray

from esd.services.clients.frame import Frame
from esd.services.clients.rows import RowClient
from esd.services.domain.parcels import NO_PULLS, Parcel, Pulls
from esd.services.domain.plans import NO_TRANSFERS, DirectRows, GradientTransfers, Membership, TableMoves, Transfers
from esd.services.domain.rows import GradientBlock, RowBlock
from esd.services.runtime.tasks import run_in
from esd.worker.service.inbox import ExpectedRows
from esd.worker.service.peers import Peers
from esd.worker.training.rows import RowCache


class TableMover:
    """Moves a table's rows out of the cache and into it.

    Args:
        cache: the worker's rows of the table.
        servers: the table at the parameter servers.
        peers: the other workers.
        membership: has the epoch, this worker's slot, and the rates at which rows are trained.
        reading_thread: copies rows from the training device to the host while another thread trains.

    Attributes:
        cache: as above.
        servers: as above.
        epoch: of the membership.
    """

    def __init__(
        self, cache: RowCache, servers: RowClient, peers: Peers, membership: Membership, reading_thread: Executor
    ) -> None:
        self.cache = cache
        self.servers = servers
        self._peers = peers
        self.epoch = membership.epoch
        self._membership = membership
        self._reading_thread = reading_thread

    async def flush(self, rows: Transfers, gradients: GradientTransfers) -> int:
        """Pushes rows and gradients while no iteration trains. Returns the bytes sent when all of it is durable."""
        parcel = await self.parcel(rows, gradients, NO_PULLS)
        pushed = await self.servers.push(parcel, epoch=self.epoch)
        self.cache.empty_gathered(gradients.rows.slots)
        return pushed.bytes_sent

    async def load(self, rows: Transfers) -> NDArray[np.float32]:
        """Pulls rows at their versions: float32 [r, W]."""
        pulled = self.cache.staging(len(rows))
        await self.servers.pull(rows.ids, rows.versions, pulled, epoch=self.epoch)
        return pulled

    async def deliver(self, rows: Transfers, peers: NDArray[np.uint32], iteration: int, *, urgent: bool) -> list[Frame]:
        """Queues rows for the workers that train them next, and returns when they have been copied into frames.

        Args:
            rows: the rows, which this worker has owned.
            peers: uint32 [r], the slot of the receiving worker.
            iteration: the one in which the receiver trains them.
            urgent: whether the frames overtake unsent frames that are not urgent.
        """
        block = await self._rows(rows)
        return [
            frame
            for slot in np.unique(peers).tolist()
            for frame in self._peers.deliver(
                slot, self.servers.table, block[np.flatnonzero(peers == slot)], iteration, urgent=urgent
            )
        ]

    async def parcel(self, rows: Transfers, gradients: GradientTransfers, pulls: Pulls) -> Parcel:
        """Makes a parcel of rows and gradients in the cache, and of pulls."""
        split, table = gradients.rows, self.servers.table
        floats, slots = await self._on_host(split.slots, table.dimension, gradients=True)
        block = GradientBlock(
            split.ids,
            split.versions,
            gradients.contributors,
            gradients.steps.astype(np.uint32),
            self._membership.job.row_rates(table, gradients.steps),
            floats,
            self._membership.slot,
            slots,
        )
        return Parcel(await self._rows(rows), block, pulls)

    async def _rows(self, rows: Transfers) -> RowBlock:
        return RowBlock(rows.ids, rows.versions, *await self._on_host(rows.slots, self.cache.width))

    async def _on_host(
        self, slots: NDArray[np.uint32], columns: int, *, gradients: bool = False
    ) -> tuple[NDArray[np.float32], NDArray[np.uint32] | None]:
        """Returns a table in host memory, and where in it the rows, or gradients, of these slots lie."""
        cache = self.cache
        if cache.host_rows is not None:
            return (cache.gradients.numpy() if gradients else cache.host_rows), slots
        if not len(slots):
            return np.empty((0, columns), np.float32), None
        return await run_in(self._reading_thread, partial(cache.read, slots, columns, gradients=gradients)), None


class TableTransfers:
    """The moves of one table in one iteration, one half after the other.

    Args:
        moves: of the table.
        mover: of the table.
        iteration: of the plan.
        trace_parent: the worker's span of the iteration, as W3C's traceparent; empty unless it is traced.

    Attributes:
        frames: the frames so far to parameter servers.
        delivered: the frames so far to other workers.
    """

    def __init__(self, moves: TableMoves, mover: TableMover, iteration: int, trace_parent: str) -> None:
        self.frames: list[Frame] = []
        self.delivered: list[Frame] = []
        self._moves = moves
        self._mover = mover
        self._iteration = iteration
        self._trace_parent = trace_parent
        update_rows, self._direct_rows = _apart(moves.update_rows, moves.direct_pushes)
        self._rows = update_rows.joined(moves.evict_rows)
        self._gradients = moves.update_gradients.joined(moves.evict_gradients)
        # Rows without their optimizer state follow the whole rows, and get a state of 0.
        self._order = np.argsort(moves.stateless_pulls, kind="stable")
        self._staging = mover.cache.staging(len(moves.pulls))

    def expected(self) -> ExpectedRows:
        """Returns the rows that other workers send, with their places."""
        direct = self._moves.direct_pulls.places
        return ExpectedRows(self._moves.pulls.at(direct), self._staging, np.argsort(self._order)[direct])

    async def start(self, *, early: bool) -> list[Frame]:
        """Starts one half, and returns its frames. Its rows have been copied, and their slots may be overwritten."""
        rows, gradients = self._rows.half(early=early), self._gradients.half(early=early)
        pulls = self._pulls(early=early)
        sent: list[Frame] = []
        if len(rows) or len(gradients) or len(pulls):
            mover = self._mover
            parcel = await mover.parcel(rows, gradients, pulls)
            sent = mover.servers.exchange(
                parcel, self._staging, epoch=mover.epoch, urgent=not early, trace_parent=self._trace_parent
            )
        delivered = await self._deliver(early=early) if len(self._direct_rows) else []
        self.frames += sent
        self.delivered += delivered
        return sent + delivered

    def write(self) -> None:
        """Copies the pulled rows into their slots. The gradients gathered there have been pushed before."""
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
        """Returns the pulls of one half from parameter servers."""
        moves, order = self._moves, self._order
        asked = order < moves.pulls.early if early else order >= moves.pulls.early
        if len(moves.direct_pulls):
            asked &= ~np.isin(order, moves.direct_pulls.places)
        places = np.flatnonzero(asked)
        rows = order[places]
        stateless = int(np.count_nonzero(moves.stateless_pulls[rows]))
        return Pulls(moves.pulls.ids[rows], moves.pulls.versions[rows], places, stateless)


def _apart(rows: Transfers, direct: DirectRows) -> tuple[Transfers, Transfers]:
    """Returns the rows for parameter servers, and the rows for other workers."""
    if not len(direct):
        return rows, NO_TRANSFERS
    return rows.at(np.delete(np.arange(len(rows)), direct.places)), rows.at(direct.places)
