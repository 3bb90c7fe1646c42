"""The rows of one table on the move between a worker's cache and the parameter servers."""

from __future__ import annotations

from concurrent.futures import Executor
from functools import partial

import numpy as np
from numpy.typing import NDArray

from services.clients.frames import Frame
from services.domain.frames import NO_PULLS, Floats, GradientPush, Parcel, Pulls, RowPush
from services.domain.jobs import JobSpec
from services.domain.plans import GradientTransfers, TableMoves, Transfers
from worker.service.table_servers import TableServers
from worker.service.tasks import run_in
from worker.training.rows import RowCache


class TableMover:
    """Moves the rows of a table between its cache and its parameter servers.

    Args:
        cache: the worker's rows of the table.
        servers: the table, wherever its shards are.
        job: says at which rate rows are trained, which travels with partial gradients.
        worker: slot of this worker.
        reading_thread: copies rows from the training device to the host, while another thread trains.
    """

    def __init__(
        self, cache: RowCache, servers: TableServers, job: JobSpec, worker: int, reading_thread: Executor
    ) -> None:
        self.cache = cache
        self.servers = servers
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

    Attributes:
        frames: what has been sent so far.
    """

    def __init__(self, moves: TableMoves, mover: TableMover) -> None:
        self.frames: list[Frame] = []
        self._moves = moves
        self._mover = mover
        # Rows come whole, or without their optimizer state: those that do lie behind the others, and have a state of 0.
        self._order = np.argsort(moves.stateless_pulls, kind="stable")
        self._staging = mover.cache.staging(len(moves.pulls))

    async def start(self, *, early: bool) -> list[Frame]:
        """Starts the pushes and pulls of one half, and returns the frames that carry it."""
        moves = self._moves
        rows = _half(early, moves.update_rows, moves.evict_rows)
        gradients = _gradient_half(early, moves.update_gradients, moves.evict_gradients)
        pulls = self._pulls(early)
        if not (len(rows) or len(gradients) or len(pulls)):
            return []
        sent = await self._mover.exchange(rows, gradients, pulls, self._staging, urgent=not early)
        self.frames += sent
        return sent

    def write(self) -> None:
        """Puts the rows that were pulled into their slots, when all that was gathered there has been pushed."""
        moves, cache = self._moves, self._mover.cache
        cache.write(moves.pulls.slots[self._order], self._staging)
        for slots in (moves.update_gradients.rows.slots, moves.evict_gradients.rows.slots, moves.pulls.slots):
            cache.empty_gathered(slots)

    def _pulls(self, early: bool) -> Pulls:
        places = np.flatnonzero((self._order < self._moves.pulls.early) == early)
        chosen, rows = self._order[places], self._moves.pulls
        return Pulls(rows.ids[chosen], rows.versions[chosen], places, self._moves.stateless_pulls[chosen])


def _half(early: bool, *transfers: Transfers) -> Transfers:
    """Joins the entries that may move while the iteration before trains, or those that must wait for its end."""
    parts = [(each, _part(each, early)) for each in transfers]
    ids = np.concatenate([each.ids[part] for each, part in parts])
    slots = np.concatenate([each.slots[part] for each, part in parts])
    versions = np.concatenate([each.versions[part] for each, part in parts])
    return Transfers(ids, slots, versions, early=len(ids) if early else 0)


def _gradient_half(early: bool, *transfers: GradientTransfers) -> GradientTransfers:
    """Joins gradients as `_half` joins rows."""
    parts = [(each, _part(each.rows, early)) for each in transfers]
    contributors = np.concatenate([each.contributors[part] for each, part in parts])
    steps = np.concatenate([each.steps[part] for each, part in parts])
    return GradientTransfers(_half(early, *(each.rows for each in transfers)), contributors, steps)


def _part(rows: Transfers, early: bool) -> slice:
    return slice(0, rows.early) if early else slice(rows.early, len(rows))
