"""One worker's part in one epoch: the same members, from its first iteration to its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from functools import partial
from hashlib import sha256
from typing import TypeVar

import numpy as np

from services.clients.dispatcher_async import AsyncDispatcherClient
from services.domain.errors import EsdError, FailedPrecondition, StaleEpoch
from services.domain.plans import EndOfStream, FlushPlan, Membership, PlanMessage, Reload
from services.domain.reports import FlushReport, Lease, WorkerPhase
from worker.core.cache_book import CacheBook
from worker.service.link import Link
from worker.service.movement import Mover
from worker.service.parameter_servers import ParameterServers
from worker.service.servicer import WorkerService
from worker.service.settings import WorkerSettings
from worker.service.tasks import run_in
from worker.service.training_loop import TrainingLoop
from worker.training.device import prepare_device
from worker.training.reducer import DenseReducer
from worker.training.rendezvous import Rendezvous
from worker.training.row_cache import RowCache
from worker.training.trainer import Trainer

_READ_AHEAD = 256  # messages

_log = logging.getLogger(__name__)

M = TypeVar("M", Membership, EndOfStream, Reload)


class WorkerEpoch:
    """Call `run` once, then `close`.

    Attributes:
        membership: of the epoch, as soon as it is known.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        dispatcher: AsyncDispatcherClient,
        lease: Lease,
        rendezvous: Rendezvous,
        service: WorkerService,
    ) -> None:
        self.membership: Membership | None = None
        self._settings = settings
        self._dispatcher = dispatcher
        self._lease = lease
        self._rendezvous = rendezvous
        self._service = service
        self._reducer: DenseReducer | None = None
        self._loop: TrainingLoop | None = None
        # torch's thread count and current device belong to a thread, so everything of torch happens in one, apart
        # from copying rows out of the cache, which goes on beside training. Each epoch has its own: that of a broken
        # one may sit in an all-reduce until the last peer has left.
        self._training_thread = ThreadPoolExecutor(1, thread_name_prefix="esd-train")
        self._reading_thread = ThreadPoolExecutor(1, thread_name_prefix="esd-rows")

    async def run(self, tasks: asyncio.TaskGroup) -> None:
        """Trains what is planned, to the end of the stream.

        Raises:
            StaleEpoch: the epoch has ended before.
            EsdError: a plan was refused, a peer is lost, the job failed.
        """
        settings = self._settings
        device = await run_in(self._training_thread, prepare_device, settings.device, settings.threads)
        messages = self._read_ahead(tasks)
        self.membership = membership = await _expect(Membership, messages)
        job = membership.job
        book = CacheBook(settings.cache_rows, membership.slot, membership.epoch, membership.iteration)
        self._service.joined(membership.slot, book)

        link = Link(settings.link, shape=settings.shape_link)
        async with (
            aclosing(ParameterServers(job, membership.slot, link, settings, membership.epoch)) as servers,
            asyncio.TaskGroup() as moves,  # ends before the channels are closed
        ):
            await servers.create_table()
            self._reducer = await run_in(
                self._training_thread, self._rendezvous.join, membership, device.type, settings.peer_timeout
            )
            cache = await run_in(self._training_thread, RowCache, settings.cache_rows, job.table.row_width, device)
            trainer = await run_in(self._training_thread, Trainer, job, cache, self._reducer, device)
            mover = Mover(cache, servers, self._reading_thread, moves, membership)
            if membership.iteration:
                await self._reload(await _expect(Reload, messages), book, mover, trainer)

            async def take_checkpoint(plan: FlushPlan) -> None:
                await self._take_checkpoint(plan, mover, trainer)

            self._loop = TrainingLoop(
                messages,
                book,
                mover,
                trainer,
                self._training_thread,
                link,
                partial(self._dispatcher.report, self._lease),
                take_checkpoint,
            )
            flush = await self._loop.run()
            await self._finish(flush, mover, trainer)
            end = await _expect(EndOfStream, messages)
            _log.info("the stream has ended after %d iterations", end.iterations)

    def phase(self) -> WorkerPhase:
        """What the worker is doing."""
        if self._reducer is not None and self._reducer.waiting:
            return WorkerPhase.ALL_REDUCE
        return self._loop.phase if self._loop is not None else WorkerPhase.IDLE

    def close(self) -> None:
        """Leaves the all-reduce group and gives the threads up."""
        if self._reducer is not None:
            self._training_thread.submit(self._reducer.close)
        for thread in (self._training_thread, self._reading_thread):
            # Not waited for: after a failure it may sit in an all-reduce, which ends when the others leave.
            thread.shutdown(wait=False)

    def _read_ahead(self, tasks: asyncio.TaskGroup) -> AsyncIterator[PlanMessage]:
        """The plan stream, read as it comes: the end of an epoch is noticed whatever the worker waits for.

        The dispatcher's window bounds what is read and not yet used; a longer one is not read ahead altogether.
        """
        queue: asyncio.Queue[PlanMessage | EsdError] = asyncio.Queue(_READ_AHEAD)

        async def read() -> None:
            try:
                async with aclosing(self._dispatcher.watch_plans(self._lease)) as messages:
                    async for message in messages:
                        await queue.put(message)
            except StaleEpoch:
                raise
            except EsdError as error:  # has its place behind the plans that came before it
                await queue.put(error)

        async def give() -> AsyncIterator[PlanMessage]:
            while True:
                message = await queue.get()
                if isinstance(message, EsdError):
                    raise message
                yield message

        tasks.create_task(read())
        return give()

    async def _reload(self, reload: Reload, book: CacheBook, mover: Mover, trainer: Trainer) -> None:
        """Goes back to a checkpoint: cached rows, dense parameters and their optimizer as they were."""
        book.enter_reload(reload)
        rows = np.empty((len(reload.rows), mover.cache.width), np.float32)
        await mover.servers.pull(reload.rows.ids, reload.rows.versions, rows)
        await run_in(self._training_thread, mover.cache.write, reload.rows.slots, rows)
        dense = await mover.servers.get_part(reload.checkpoint, "dense")
        if sha256(dense).hexdigest() != reload.dense_checksum:
            raise FailedPrecondition(
                f"the dense parameters of checkpoint {reload.checkpoint} are damaged: their checksum differs; `esd "
                "checkpoint` tells which checkpoints are whole, and goes back to one"
            )
        await run_in(self._training_thread, trainer.dense.load, dense)
        _log.info("back at checkpoint %d with %d cached rows", reload.checkpoint, len(reload.rows))

    async def _take_checkpoint(self, plan: FlushPlan, mover: Mover, trainer: Trainer) -> None:
        """Brings home what the parameter servers lack, and tells them that nothing older comes from here."""
        membership = self.membership
        assert membership is not None  # noqa: S101 - plans come after it
        transfers = await mover.flush(plan)
        checksum = ""
        if membership.leads:
            dense = await run_in(self._training_thread, trainer.dense.save)
            checksum = sha256(dense).hexdigest()
            await mover.servers.put_part(plan.iteration, "dense", dense)
        await mover.servers.cut(plan.iteration, membership.members)
        await self._dispatcher.report(self._lease, FlushReport(plan.iteration, transfers, membership.epoch, checksum))

    async def _finish(self, flush: FlushPlan, mover: Mover, trainer: Trainer) -> None:
        """Brings home what the parameter servers lack, as for a checkpoint; one worker also stores the final model."""
        membership = self.membership
        assert membership is not None  # noqa: S101 - plans come after it
        if membership.leads:
            await mover.servers.put_dense(await run_in(self._training_thread, trainer.dense.to_npz))
        if membership.job.takes_checkpoints and flush.iteration:
            await self._take_checkpoint(flush, mover, trainer)
        else:
            transfers = await mover.flush(flush)
            await self._dispatcher.report(self._lease, FlushReport(flush.iteration, transfers, membership.epoch))


async def _expect(kind: type[M], messages: AsyncIterator[PlanMessage]) -> M:
    message = await anext(messages)
    if not isinstance(message, kind):
        raise FailedPrecondition(f"{type(message).__name__} came where {kind.__name__} was expected")
    return message
