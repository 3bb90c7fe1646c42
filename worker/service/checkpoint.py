"""A worker's part in checkpoints: what it stores for one, and how it goes back to one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from hashlib import sha256
from typing import Any

import numpy as np

from services.domain.errors import FailedPrecondition
from services.domain.plans import FlushPlan, Membership, Reload
from services.domain.reports import FlushReport
from worker.core.cache_book import CacheBook
from worker.service.tasks import run_in
from worker.service.transfers import RowMover
from worker.training.trainer import Trainer

_DENSE = "dense"  # the part of a checkpoint that workers store

_log = logging.getLogger(__name__)


class WorkerCheckpoints:
    """Stores and loads what a worker adds to the checkpoints of its job.

    Args:
        membership: of the epoch.
        mover: pushes what the cache holds alone.
        trainer: has the dense parameters.
        training_thread: the thread of all of torch.
        report: confirms a flush to the dispatcher.
    """

    def __init__(
        self,
        membership: Membership,
        mover: RowMover,
        trainer: Trainer,
        training_thread: Executor,
        report: Callable[[FlushReport], Coroutine[Any, Any, None]],
    ) -> None:
        self._membership = membership
        self._mover = mover
        self._trainer = trainer
        self._training_thread = training_thread
        self._report = report

    async def go_back(self, reload: Reload, book: CacheBook) -> None:
        """Makes cached rows, dense parameters and their optimizer what they were at a checkpoint.

        Raises:
            FailedPrecondition: the dense parameters are damaged, or the reload does not fit the cache.
        """
        book.enter_reload(reload)
        mover = self._mover
        rows = np.empty((len(reload.rows), mover.cache.width), np.float32)
        await mover.servers.pull(reload.rows.ids, reload.rows.versions, rows)
        await run_in(self._training_thread, mover.cache.write, reload.rows.slots, rows)
        dense = await mover.servers.get_part(reload.checkpoint, _DENSE)
        if sha256(dense).hexdigest() != reload.dense_checksum:
            raise FailedPrecondition(
                f"the dense parameters of checkpoint {reload.checkpoint} are damaged: their checksum differs; `esd "
                "checkpoint` tells which checkpoints are whole, and goes back to one"
            )
        await run_in(self._training_thread, self._trainer.dense.load, dense)
        _log.info("back at checkpoint %d with %d cached rows", reload.checkpoint, len(reload.rows))

    async def take(self, plan: FlushPlan) -> None:
        """Pushes what the parameter servers lack, and tells them that nothing older comes from this worker.

        The first member also stores the dense parameters, which are the same on every worker.
        """
        transfers = await self._mover.flush(plan)
        checksum = ""
        if self._membership.leads:
            dense = await run_in(self._training_thread, self._trainer.dense.save)
            checksum = sha256(dense).hexdigest()
            await self._mover.servers.put_part(plan.iteration, _DENSE, dense)
        await self._mover.servers.cut(plan.iteration, self._membership.members)
        await self._report(FlushReport(plan.iteration, transfers, self._membership.epoch, checksum))

    async def finish(self, flush: FlushPlan) -> None:
        """Does at the end of the stream what is done for a checkpoint; the first member also stores the final model."""
        membership = self._membership
        if membership.leads:
            await self._mover.servers.put_dense(await run_in(self._training_thread, self._trainer.dense.to_npz))
        if membership.job.takes_checkpoints and flush.iteration:
            await self.take(flush)
        else:
            transfers = await self._mover.flush(flush)
            await self._report(FlushReport(flush.iteration, transfers, membership.epoch))
