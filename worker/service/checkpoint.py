"""A worker's part in checkpoints: what it stores for one, and how it goes back to one."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from hashlib import sha256
from typing import TypeVar

from esd.services.domain.errors import FailedPrecondition, StorageUnwritable
from esd.services.domain.plans import FlushPlan, Membership, Reload
from esd.services.domain.reports import FlushReport
from esd.services.runtime.retry import repeated
from esd.services.runtime.tasks import run_in
from esd.worker.core.cache_book import CacheBook
from esd.worker.service.transfers import RowMover
from esd.worker.training.dense import DenseParameters

_DENSE = "dense"  # the part of a checkpoint that workers store

_log = logging.getLogger(__name__)

T = TypeVar("T")


class WorkerCheckpoints:
    """Stores and loads what a worker adds to the checkpoints of its job.

    Args:
        membership: of the epoch.
        mover: pushes what the cache holds alone.
        dense: the dense parameters.
        caller: makes calls in the thread that trains.
        report: confirms a flush to the dispatcher.
        storage_timeout: seconds to wait at the end of the stream for room on a parameter server's disk.
    """

    def __init__(
        self,
        membership: Membership,
        mover: RowMover,
        dense: DenseParameters,
        caller: Executor,
        report: Callable[[FlushReport], Awaitable[None]],
        storage_timeout: float,
    ) -> None:
        self._membership = membership
        self._mover = mover
        self._dense = dense
        self._caller = caller
        self._report = report
        self._storage_timeout = storage_timeout
        self._stored = 0, ""  # the checkpoint to which nothing is to be added, and the checksum of what was

    async def go_back(self, reload: Reload, book: CacheBook) -> None:
        """Makes cached rows, dense parameters and their optimizer what they were at a checkpoint.

        Raises:
            FailedPrecondition: the dense parameters are damaged, or the reload does not fit the cache.
        """
        book.enter_reload(reload)
        mover = self._mover
        for table, rows in mover.by_table(reload.rows):
            pulled = await table.load(rows)
            await run_in(self._caller, table.cache.write, rows.slots, pulled)
        saved = await mover.servers.get_part(reload.checkpoint, _DENSE)
        if sha256(saved).hexdigest() != reload.dense_checksum:
            raise FailedPrecondition(
                f"the dense parameters of checkpoint {reload.checkpoint} are damaged: their checksum differs; `esd "
                "checkpoint` tells which checkpoints are whole, and goes back to one"
            )
        await run_in(self._caller, self._dense.load, saved)
        self._stored = reload.checkpoint, ""
        _log.info("back at checkpoint %d with %d cached rows", reload.checkpoint, len(reload.rows))

    async def take(self, plan: FlushPlan) -> None:
        """Pushes what the parameter servers lack, and tells them that nothing older comes from this worker.

        The first member also stores the dense parameters, which are the same on every worker.
        """
        transfers = await self._mover.flush(plan)
        checksum = failure = ""
        try:
            checksum = await self._store(plan)
        except StorageUnwritable as error:  # there is no checkpoint this time, and training goes on
            failure = str(error)
            _log.warning("checkpoint %d cannot be stored: %s", plan.iteration, error)
        epoch = self._membership.epoch
        await self._report(FlushReport(plan.iteration, transfers, epoch, checksum, failure, checkpoint=True))

    async def finish(self, flush: FlushPlan) -> None:
        """Does at the end of the stream what is done for a checkpoint; the first member also stores the final model."""
        membership, checksum = self._membership, ""
        if membership.leads:
            model = await run_in(self._caller, self._dense.to_npz)
            await self._with_room(lambda: self._mover.servers.put_dense(model))
        transfers = await self._mover.flush(flush)
        if membership.job.takes_checkpoints and flush.iteration:
            checksum = await self._with_room(lambda: self._store(flush))
        elif flush.iteration:
            await self._with_room(lambda: self._mover.servers.cut(flush.iteration, membership.members, last=True))
        await self._report(FlushReport(flush.iteration, transfers, membership.epoch, checksum))

    async def _store(self, plan: FlushPlan) -> str:
        """Stores what this worker adds to a checkpoint; returns the checksum of the dense parameters if it leads.

        The stream may end right behind one, to which nothing is added then.
        """
        checkpoint, checksum = self._stored
        if checkpoint == plan.iteration:
            return checksum
        checksum = ""
        if self._membership.leads:
            saved = await run_in(self._caller, self._dense.save)
            checksum = sha256(saved).hexdigest()
            await self._mover.servers.put_part(plan.iteration, _DENSE, saved)
        await self._mover.servers.cut(plan.iteration, self._membership.members)
        self._stored = plan.iteration, checksum
        return checksum

    async def _with_room(self, call: Callable[[], Awaitable[T]]) -> T:
        """Makes calls at the end of the stream, when there is nothing to go on with but to wait for room on a disk."""
        return await repeated(call, self._storage_timeout, on=StorageUnwritable)
