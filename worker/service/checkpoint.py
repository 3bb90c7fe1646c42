"""A worker's part in checkpoints: its stored state, and the return to a checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from functools import partial
from hashlib import sha256
from typing import TypeVar

from esd.services.domain.errors import FailedPrecondition, InvalidArgument, StorageUnwritable
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
    """Stores and loads a worker's part of its job's checkpoints.

    Args:
        membership: of the epoch.
        mover: pushes the updates that only the cache holds.
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

    def check_model_fits(self) -> None:
        """Refuses a model that the first server would not store at the end of the stream.

        Raises:
            InvalidArgument: the model has more bytes than the server stores.
        """
        size, most = self._dense.model_bytes, self._mover.servers.max_dense_bytes
        if size > most:
            raise InvalidArgument(
                f"the dense parameters of the model have {size} bytes, and the parameter server stores {most} "
                "(ESD_PS_MAX_DENSE_BYTES)"
            )

    async def go_back(self, reload: Reload, book: CacheBook) -> None:
        """Restores cached rows, dense parameters and their optimizer as of a checkpoint.

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
        await run_in(self._caller, partial(self._dense.load, saved, leads=self._membership.leads))
        self._stored = reload.checkpoint, ""
        _log.info("back at checkpoint %d with %d cached rows", reload.checkpoint, len(reload.rows))

    async def take(self, plan: FlushPlan) -> None:
        """Pushes the updates that the parameter servers lack, and reports that nothing older comes from this worker.

        One member also stores the dense parameters, which are the same on every worker that does not rest.
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
        """Ends the stream with a flush as for a checkpoint; the member that stores its parameters stores the model."""
        membership, checksum = self._membership, ""
        await run_in(self._caller, self._dense.settle)
        if flush.stores_dense:
            model = await run_in(self._caller, self._dense.to_npz)
            await self._with_room(lambda: self._mover.servers.put_dense(model))
        transfers = await self._mover.flush(flush)
        if membership.job.takes_checkpoints and flush.iteration:
            checksum = await self._with_room(lambda: self._store(flush))
        elif flush.iteration:
            await self._with_room(lambda: self._mover.servers.cut(flush.iteration, membership.members, last=True))
        await self._report(FlushReport(flush.iteration, transfers, membership.epoch, checksum))

    async def _store(self, plan: FlushPlan) -> str:
        """Stores this worker's part of a checkpoint; returns the checksum of the dense parameters if it stores them.

        The stream may end directly after a checkpoint; its part is stored already then.
        """
        checkpoint, checksum = self._stored
        if checkpoint == plan.iteration:
            return checksum
        checksum, stores = "", plan.stores_dense
        await run_in(self._caller, partial(self._dense.gather, leads=stores))
        if stores:
            saved = await run_in(self._caller, self._dense.save)
            checksum = sha256(saved).hexdigest()
            await self._mover.servers.put_part(plan.iteration, _DENSE, saved)
        await self._mover.servers.cut(plan.iteration, self._membership.members)
        self._stored = plan.iteration, checksum
        return checksum

    async def _with_room(self, call: Callable[[], Awaitable[T]]) -> T:
        """Makes calls at the end of the stream, when there is nothing to go on with but to wait for room on a disk."""
        return await repeated(call, self._storage_timeout, on=StorageUnwritable)
