"""A worker's part in one epoch: the iterations that the same workers train together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import TypeVar

from esd.services.clients.attendance import Attendance
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.plans import EndOfStream, Membership, PlanMessage, Reload
from esd.services.domain.reports import Lease, WorkerPhase
from esd.services.domain.tables import slots_of_tables
from esd.services.runtime.tasks import run_in
from esd.services.runtime.threads import named_threads
from esd.worker.core.cache_book import CacheBook
from esd.worker.service.checkpoint import WorkerCheckpoints
from esd.worker.service.inbox import Inbox
from esd.worker.service.link import Link
from esd.worker.service.parameter_servers import ParameterServers
from esd.worker.service.peers import Peers
from esd.worker.service.servicer import WorkerService
from esd.worker.service.settings import WorkerSettings
from esd.worker.service.table_mover import TableMover
from esd.worker.service.training_loop import TrainingLoop
from esd.worker.service.transfers import RowMover
from esd.worker.training.all_reduce import DenseReducer, GroupStore, join_group
from esd.worker.training.device import prepare_device
from esd.worker.training.rows import row_caches
from esd.worker.training.trainer import Trainer

_log = logging.getLogger(__name__)

M = TypeVar("M", Membership, EndOfStream, Reload)


class WorkerEpoch:
    """Sets up the training of one epoch and sees it through. Call `run` once, then `close`.

    Args:
        settings: of this worker.
        attendance: gives the plans and takes the reports.
        dispatcher: lets the members of the epoch tell each other something.
        lease: of this worker.
        host: at which the other workers reach this one.
        service: describes the worker to operators.

    Attributes:
        membership: of the epoch, None until the dispatcher has sent it.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        attendance: Attendance,
        dispatcher: AsyncDispatcherClient,
        lease: Lease,
        host: str,
        service: WorkerService,
    ) -> None:
        self.membership: Membership | None = None
        self._settings = settings
        self._attendance = attendance
        self._dispatcher = dispatcher
        self._lease = lease
        self._host = host
        self._service = service
        self._reducer: DenseReducer | None = None
        self._loop: TrainingLoop | None = None
        # torch's thread count and current device belong to a thread, so everything of torch happens in one, apart
        # from copying rows out of the cache, which goes on beside training. Each epoch has its own: that of a broken
        # one may sit in an all-reduce until the last peer has left.
        self._training_thread = named_threads("esd-train")
        self._reading_thread = named_threads("esd-rows")

    async def run(self) -> None:
        """Trains what is planned, to the end of the stream.

        Raises:
            StaleEpoch: the epoch has ended before.
            EsdError: a plan was refused, a peer is lost, the job failed.
        """
        settings = self._settings
        device = await run_in(self._training_thread, prepare_device, settings.device, settings.threads)
        messages = self._attendance
        self.membership = membership = await _expect(Membership, messages)
        job = membership.job
        slots = slots_of_tables(job.tables, settings.cache_rows)
        book = CacheBook(
            slots, membership.slot, membership.epoch, membership.iteration, keeps_copies=job.sync.keeps_copies
        )
        self._service.joined(membership.slot, book)

        link = Link(settings.link, shape=settings.shape_link)
        async with (
            aclosing(ParameterServers(job, membership.slot, link, settings, membership.epoch)) as servers,
            self._peers_of(membership, link) as peers,
            asyncio.TaskGroup() as moves,  # ends before the channels are closed
        ):
            await servers.create_tables(membership.claimant)
            await peers.meet()
            self._reducer = await run_in(
                self._training_thread, join_group, membership, self._group_store(membership), self._host, device.type,
                settings.peer_timeout,
            )  # fmt: skip
            caches = await run_in(
                self._training_thread, partial(row_caches, job.tables, slots, device, gathers=job.sync.keeps_copies)
            )
            trainer = await run_in(self._training_thread, Trainer, job, caches, self._reducer, device)
            tables = [
                TableMover(cache, table, peers, membership, self._reading_thread)
                for cache, table in zip(caches, servers.tables, strict=True)
            ]
            mover = RowMover(tables, servers, peers, moves, membership)
            report = self._attendance.report
            checkpoints = WorkerCheckpoints(
                membership, mover, trainer, self._training_thread, report, settings.storage_timeout
            )
            if membership.iteration:
                await checkpoints.go_back(await _expect(Reload, messages), book)
            self._loop = TrainingLoop(
                messages, book, mover, trainer, self._training_thread, link, messages.confirm, checkpoints.take,
                sync=job.sync,
            )  # fmt: skip
            await checkpoints.finish(await self._loop.run())
            end = await _expect(EndOfStream, messages)
            _log.info("the stream has ended after %d iterations", end.iterations)

    def phase(self) -> WorkerPhase:
        """Tells what the worker is doing, for its heartbeats."""
        if self._reducer is not None and self._reducer.waiting:
            return WorkerPhase.ALL_REDUCE
        return self._loop.phase if self._loop is not None else WorkerPhase.IDLE

    def close(self) -> None:
        """Leaves the all-reduce group and lets go of the threads."""
        if self._reducer is not None:
            self._training_thread.submit(self._reducer.close)
        for thread in (self._training_thread, self._reading_thread):
            # Not waited for: after a failure it may sit in an all-reduce, which ends when the others leave.
            thread.shutdown(wait=False)

    @asynccontextmanager
    async def _peers_of(self, membership: Membership, link: Link) -> AsyncIterator[Peers]:
        """Lets the other workers send rows here, and gives the way to them."""
        tables, within = membership.job.tables, self._settings.peer_timeout
        inbox = Inbox(membership.epoch, membership.slot, membership.iteration, tables, within)
        self._service.deliveries.begin(inbox, link)
        try:
            async with aclosing(Peers(membership, inbox, link, self._settings)) as peers:
                yield peers
        finally:
            self._service.deliveries.end()

    def _group_store(self, membership: Membership) -> GroupStore:
        """Returns the dispatcher's keys of this epoch, for torch, which asks for them in threads of its own."""
        loop, dispatcher, lease, epoch = asyncio.get_running_loop(), self._dispatcher, self._lease, membership.epoch
        within = self._settings.peer_timeout

        def put(key: str, value: bytes) -> None:
            asyncio.run_coroutine_threadsafe(dispatcher.put_group_key(lease, epoch, key, value), loop).result()

        def get(key: str) -> bytes:
            call = dispatcher.get_group_key(lease, epoch, key, within=within)
            return asyncio.run_coroutine_threadsafe(call, loop).result()

        return GroupStore(put, get)


async def _expect(kind: type[M], messages: AsyncIterator[PlanMessage]) -> M:
    message = await anext(messages)
    if not isinstance(message, kind):
        raise FailedPrecondition(f"{type(message).__name__} came where {kind.__name__} was expected")
    return message
