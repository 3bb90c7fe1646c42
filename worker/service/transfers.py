"""The transfers of a plan: rows and gradients from the cache to the parameter servers, missing rows back."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.clients.frames import Frame
from services.domain.frames import NO_PULLS, Floats, GradientPush, Parcel, Pulls, RowPush
from services.domain.plans import FlushPlan, GradientTransfers, IterationPlan, Membership, Transfers
from services.domain.reports import TransferCounts
from worker.service.parameter_servers import ParameterServers
from worker.service.tasks import run_in
from worker.training.rows import RowCache


class RowMover:
    """Moves rows between the cache and the parameter servers.

    Args:
        cache: the worker's embedding rows.
        servers: the shards of the job's table.
        reading_thread: copies rows from the training device to the host, while another thread trains.
        tasks: a transfer that fails ends this group, whoever waits for it or not.
        membership: what this worker is in the job; the first member also has the servers forget rows.
    """

    def __init__(
        self,
        cache: RowCache,
        servers: ParameterServers,
        reading_thread: Executor,
        tasks: asyncio.TaskGroup,
        membership: Membership,
    ) -> None:
        self.cache = cache
        self.servers = servers
        self.tasks = tasks
        self._membership = membership
        self._reading_thread = reading_thread

    async def flush(self, plan: FlushPlan) -> TransferCounts:
        """Pushes everything that the parameter servers lack."""
        size = await self.servers.push(await self._parcel(plan.rows, plan.gradients, NO_PULLS))
        return TransferCounts(flush_push=len(plan.rows) + len(plan.gradients), bytes_pushed=size)

    async def forget(self, plan: IterationPlan) -> None:
        """Has the parameter servers forget what the plan forgets, if this worker leads.

        To be called after the plan's training. All pushes of these rows are of earlier plans, and every worker waits
        for those of a plan before it takes part in the next all-reduce, so none is on its way any more.
        """
        if self._membership.leads and len(plan.forgotten):
            await self.servers.forget(plan.forgotten, plan.forgotten_below)

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
        frames = self.servers.exchange(await self._parcel(rows, gradients, pulls), staging, urgent=urgent)
        for frame in frames:
            for future in (frame.stored, frame.pulled):
                future.add_done_callback(self._end_if_failed)
        return frames

    async def _parcel(self, rows: Transfers, gradients: GradientTransfers, pulls: Pulls) -> Parcel:
        split, job = gradients.rows, self._membership.job
        return Parcel(
            RowPush(rows.ids, rows.versions, await self._values(rows.slots, self.cache.width)),
            GradientPush(
                split.ids,
                split.versions,
                gradients.contributors,
                gradients.steps.astype(np.uint32),
                job.schedule.rates(job.table.optimizer.learning_rate, gradients.steps),
                await self._values(split.slots, job.table.dimension),
                self._membership.slot,
            ),
            pulls,
        )

    async def _values(self, slots: NDArray[np.uint32], columns: int) -> Floats:
        """Returns where the first floats of these slots lie in the memory of the host."""
        if self.cache.host_rows is not None:
            return Floats(self.cache.host_rows, slots)
        if not len(slots):
            return Floats(np.empty((0, columns), np.float32))
        return Floats(await run_in(self._reading_thread, self.cache.read, slots, columns))

    def _end_if_failed(self, transfer: asyncio.Future[Any]) -> None:
        if not transfer.cancelled() and (error := transfer.exception()) is not None:
            failing = _fail(error)
            try:
                self.tasks.create_task(failing)
            except RuntimeError:  # the group has ended
                failing.close()


class IterationTransfers:
    """Carries out the transfers of one iteration: start the early half, start the late half, wait for both.

    The early half may move while the iteration before trains; the late one overtakes what of it was not sent yet.
    Workers cannot wait for each other in a circle: what a pull waits for is pushed in the same half of the same
    iteration or before, and no push waits for a pull.
    """

    def __init__(self, plan: IterationPlan, mover: RowMover) -> None:
        self.plan = plan
        self._mover = mover
        self._staging = mover.cache.staging(len(plan.pulls))
        self._frames: list[Frame] = []

    async def start(self, *, early: bool) -> None:
        """Starts the pushes and pulls of one half.

        On return everything that is pushed has been read from the cache, and its slots may be overwritten.
        """
        plan = self.plan
        rows = _half(early, plan.update_rows, plan.evict_rows)
        gradients = _gradient_half(early, plan.update_gradients, plan.evict_gradients)
        part = _part(plan.pulls, early)
        pulls = Pulls(plan.pulls.ids[part], plan.pulls.versions[part], np.arange(part.start, part.stop))
        if len(rows) or len(gradients) or len(pulls):
            self._frames += await self._mover.exchange(rows, gradients, pulls, self._staging, urgent=not early)

    async def pulled(self) -> NDArray[np.float32]:
        """Waits for the pulls, and returns their rows in the plan's order, float32 [r, W]."""
        for frame in self._frames:
            await frame.pulled
        return self._staging

    async def stored(self) -> None:
        """Waits until everything that the plan pushes is durable."""
        for frame in self._frames:
            await frame.stored

    async def finished(self) -> TransferCounts:
        """Ends the plan after its training: waits until all it pushed is durable, and tells what it has moved."""
        plan = self.plan
        await self._mover.forget(plan)
        await self.stored()
        return TransferCounts(
            miss_pull=len(plan.pulls),
            update_push=len(plan.update_rows) + len(plan.update_gradients),
            evict_push=len(plan.evict_rows) + len(plan.evict_gradients),
            bytes_pulled=sum(frame.pull_bytes for frame in self._frames),
            bytes_pushed=sum(frame.push_bytes for frame in self._frames),
        )


async def _fail(error: BaseException) -> None:
    raise error


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
