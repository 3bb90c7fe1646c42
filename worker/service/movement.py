"""The transfers of a plan."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor

import numpy as np
from numpy.typing import NDArray

from services.domain.plans import FlushPlan, GradientTransfers, IterationPlan, Transfers
from services.domain.reports import TransferCounts
from worker.core.blocks import GradientBlock, Push, RowBlock, gradient_half, half
from worker.service.parameter_servers import ParameterServers
from worker.service.tasks import run_in
from worker.training.row_cache import RowCache


class Mover:
    """Moves rows between the cache and the parameter servers."""

    def __init__(
        self,
        cache: RowCache,
        dimension: int,
        servers: ParameterServers,
        reading_thread: Executor,
        tasks: asyncio.TaskGroup,
        *,
        leads: bool,
    ) -> None:
        """Connects cache and servers.

        Args:
            cache: the worker's.
            dimension: D.
            servers: of the job.
            reading_thread: copies rows out of the cache, beside training.
            tasks: owns the transfers; a failed one ends the group.
            leads: whether this worker does what one has to do for all.
        """
        self.cache = cache
        self.servers = servers
        self.tasks = tasks
        self._leads = leads
        self._dimension = dimension
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
        if self._leads:
            await self.servers.forget(plan.forgotten, plan.forgotten_below)

    async def read(self, rows: Transfers, gradients: GradientTransfers) -> Push:
        """Copies rows and partial gradients out of the cache."""
        return await run_in(self._reading_thread, self._read, rows, gradients)

    def _read(self, rows: Transfers, gradients: GradientTransfers) -> Push:
        split = gradients.rows
        return Push(
            RowBlock(rows.ids, rows.versions, self.cache.read(rows.slots, self.cache.width)),
            GradientBlock(
                split.ids,
                split.versions,
                gradients.contributors,
                gradients.steps,
                self.cache.read(split.slots, self._dimension),
            ),
        )


class Movement:
    """The transfers of one iteration: start the early half, start the late half, wait for both.

    Workers cannot wait for each other in a circle: what a pull waits for is pushed in the same half of the same
    iteration or before, and no push waits for a pull of its own half.
    """

    def __init__(self, plan: IterationPlan, mover: Mover) -> None:
        self.plan = plan
        self._mover = mover
        self._staging = np.empty((len(plan.pulls), mover.cache.width), np.float32)
        self._pushes: list[asyncio.Task[int]] = []
        self._pulls: list[asyncio.Task[int]] = []

    async def start(self, *, early: bool) -> None:
        """Starts pushes, then pulls. On return everything to push is read, and its slots may be overwritten."""
        plan, mover = self.plan, self._mover
        rows = half(early, plan.update_rows, plan.evict_rows)
        gradients = gradient_half(early, plan.update_gradients, plan.evict_gradients)
        if len(rows) or len(gradients):
            push = await mover.read(rows, gradients)
            self._pushes.append(mover.tasks.create_task(mover.servers.push(push)))
        pulls = half(early, plan.pulls)
        staging = self._staging[: plan.pulls.early] if early else self._staging[plan.pulls.early :]
        self._pulls.append(mover.tasks.create_task(mover.servers.pull(pulls.ids, pulls.versions, staging)))

    async def pulled(self) -> NDArray[np.float32]:
        """Waits for the pulls; their rows in the plan's order, float32 [r, W]."""
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
