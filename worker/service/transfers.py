"""The transfers of a plan: rows and gradients from the cache to the parameter servers, missing rows back."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor

import numpy as np
from numpy.typing import NDArray

from services.domain.plans import FlushPlan, GradientTransfers, IterationPlan, Membership, Transfers
from services.domain.reports import TransferCounts
from services.domain.rows import GradientBlock, Push, RowBlock
from worker.service.parameter_servers import ParameterServers
from worker.service.tasks import run_in
from worker.training.rows import RowCache


class RowMover:
    """Moves rows between the cache and the parameter servers.

    Args:
        cache: the worker's embedding rows.
        servers: the shards of the job's table.
        reading_thread: copies rows out of the cache while another thread trains.
        tasks: owns the transfers; a transfer that fails ends the group.
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
        size = await self.servers.push(await self.read(plan.rows, plan.gradients))
        return TransferCounts(flush_push=len(plan.rows) + len(plan.gradients), bytes_pushed=size)

    async def forget(self, plan: IterationPlan) -> None:
        """Has the parameter servers forget what the plan forgets, if this worker leads.

        To be called after the plan's training. All pushes of these rows are of earlier plans, and every worker waits
        for those of a plan before it takes part in the next all-reduce, so none is on its way any more.
        """
        if self._membership.leads:
            await self.servers.forget(plan.forgotten, plan.forgotten_below)

    async def read(self, rows: Transfers, gradients: GradientTransfers) -> Push:
        """Copies rows and partial gradients out of the cache."""
        return await run_in(self._reading_thread, self._read, rows, gradients)

    def _read(self, rows: Transfers, gradients: GradientTransfers) -> Push:
        split, dimension = gradients.rows, self._membership.job.table.dimension
        return Push(
            RowBlock(rows.ids, rows.versions, self.cache.read(rows.slots, self.cache.width)),
            GradientBlock(
                split.ids,
                split.versions,
                gradients.contributors,
                gradients.steps,
                self.cache.read(split.slots, dimension),
                self._membership.slot,
            ),
        )


class IterationTransfers:
    """Carries out the transfers of one iteration: start the early half, start the late half, wait for both.

    The early half may move while the iteration before trains. Workers cannot wait for each other in a circle: what a
    pull waits for is pushed in the same half of the same iteration or before, and no push waits for a pull of its own
    half.
    """

    def __init__(self, plan: IterationPlan, mover: RowMover) -> None:
        self.plan = plan
        self._mover = mover
        self._staging = np.empty((len(plan.pulls), mover.cache.width), np.float32)
        self._pushes: list[asyncio.Task[int]] = []
        self._pulls: list[asyncio.Task[int]] = []

    async def start(self, *, early: bool) -> None:
        """Starts the pushes of one half, then its pulls.

        On return everything that is pushed has been read from the cache, and its slots may be overwritten.
        """
        plan, mover = self.plan, self._mover
        rows = _half(early, plan.update_rows, plan.evict_rows)
        gradients = _gradient_half(early, plan.update_gradients, plan.evict_gradients)
        if len(rows) or len(gradients):
            push = await mover.read(rows, gradients)
            self._pushes.append(mover.tasks.create_task(mover.servers.push(push)))
        pulls = _half(early, plan.pulls)
        staging = self._staging[: plan.pulls.early] if early else self._staging[plan.pulls.early :]
        self._pulls.append(mover.tasks.create_task(mover.servers.pull(pulls.ids, pulls.versions, staging)))

    async def pulled(self) -> NDArray[np.float32]:
        """Waits for the pulls, and returns their rows in the plan's order, float32 [r, W]."""
        await asyncio.gather(*self._pulls)
        return self._staging

    async def finished(self) -> TransferCounts:
        """Ends the plan after its training: waits until all it pushed is durable, and tells what it has moved."""
        plan = self.plan
        await self._mover.forget(plan)
        return TransferCounts(
            miss_pull=len(plan.pulls),
            update_push=len(plan.update_rows) + len(plan.update_gradients),
            evict_push=len(plan.evict_rows) + len(plan.evict_gradients),
            bytes_pulled=sum(await asyncio.gather(*self._pulls)),
            bytes_pushed=sum(await asyncio.gather(*self._pushes)),
        )


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
