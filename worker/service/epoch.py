"""A worker's part in one epoch: the iterations that the same workers train together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import TypeVar

import torch

from esd.services.clients.attendance import Attendance
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.jobs import JobSpec
from esd.services.domain.plans import EndOfStream, Membership, PlanMessage, Reload
from esd.services.domain.reports import FlushReport, IterationReport, Lease, WorkerPhase
from esd.services.domain.tables import slots_of_tables
from esd.services.runtime.leavable_thread import LeavableThread
from esd.services.runtime.site_values import SiteValues
from esd.services.runtime.tasks import run_in
from esd.services.runtime.threads import named_threads
from esd.services.runtime.tracing import enter
from esd.worker.core.cache_book import CacheBook
from esd.worker.service.caller import Caller
from esd.worker.service.checkpoint import WorkerCheckpoints
from esd.worker.service.dense_sums import Meeting, join_sums
from esd.worker.service.inbox import Inbox
from esd.worker.service.job_values import values_of_job
from esd.worker.service.link import Link
from esd.worker.service.parameter_servers import ParameterServers
from esd.worker.service.peers import Peers
from esd.worker.service.ring_link import RingLink
from esd.worker.service.servicer import WorkerService
from esd.worker.service.settings import WorkerSettings
from esd.worker.service.table_mover import TableMover
from esd.worker.service.training_loop import RowsTrained, TrainingLoop
from esd.worker.service.transfers import IterationTransfers, RowMover
from esd.worker.training.all_reduce import GroupStore
from esd.worker.training.dense import DenseParameters
from esd.worker.training.reducer import DenseReducer
from esd.worker.training.rows import row_caches
from esd.worker.training.step import Step, Steps

_DENSE_KEY = "dense"  # the checksum of the dense parameters before the first iteration, of an epoch's keys

_log = logging.getLogger(__name__)

M = TypeVar("M", Membership, EndOfStream, Reload)
R = TypeVar("R", IterationReport, FlushReport)


@dataclass(frozen=True, slots=True)
class Training:
    """The subject of a worker's training, and its place.

    Attributes:
        model_of: called at the beginning of every epoch, with the job, the reducer of the epoch and `device`, in the
            thread that trains: a model as it is before the first iteration of the job.
        device: where the rows and the model are.
        may_rest: whether sums of dense gradients may stay away while the worker has no samples.
    """

    model_of: Callable[[JobSpec, DenseReducer, torch.device], DenseParameters]
    device: torch.device
    may_rest: bool = False


class WorkerEpoch:
    """Sets up the training of one epoch and sees it through. Call `run` once, then `close`.

    Args:
        settings: of this worker.
        attendance: gives the plans and takes the reports.
        link: of the machine, which all messages share.
        dispatcher: lets the members of the epoch tell each other something.
        lease: of this worker.
        host: at which the other workers reach this one.
        service: describes the worker to operators.
        caller: makes calls in the thread that trains.
        training: the model to train, and its device.
        values: of the worker's site; None: it has none.

    Attributes:
        membership: of the epoch, None until the dispatcher has sent it.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        attendance: Attendance,
        link: Link,
        dispatcher: AsyncDispatcherClient,
        lease: Lease,
        host: str,
        service: WorkerService,
        caller: Caller,
        training: Training,
        values: SiteValues | None,
    ) -> None:
        self.membership: Membership | None = None
        self._settings = settings
        self._attendance = attendance
        self._link = link
        # A second network for what goes between workers, if there is one. Its bytes are not the link's.
        self._lan = Link(settings.lan, shape=settings.shape_link) if settings.lan else link
        self._dispatcher = dispatcher
        self._lease = lease
        self._host = host
        self._service = service
        self._caller = caller
        self._training = training
        self._values = values
        self._reducer: DenseReducer | None = None
        self._loop: TrainingLoop | None = None
        # Copies rows out of the cache while an iteration trains.
        self._reading_thread = named_threads("esd-rows")
        # Meets the other workers and leaves them. Both may take as long as the timeout of the slowest worker, and the
        # thread that trains must be free for the next epoch meanwhile.
        self._group_thread = LeavableThread("esd-group")

    async def run(self) -> None:
        """Trains the planned iterations, to the end of the stream.

        Raises:
            StaleEpoch: the epoch has ended before.
            EsdError: a plan was refused, a peer is lost, the job failed.
        """
        settings = self._settings
        caller, device = self._caller, self._training.device
        messages = self._attendance
        self.membership = membership = await _expect(Membership, messages)
        job = membership.job
        values = values_of_job(self._values, job)
        slots = slots_of_tables(job.tables, settings.cache_rows)
        book = CacheBook(
            slots, membership.slot, membership.epoch, membership.iteration, keeps_copies=job.sync.keeps_copies
        )
        self._service.joined(membership.slot, book)

        async with (
            aclosing(ParameterServers(job, membership.slot, self._link, settings, membership.epoch)) as servers,
            self._peers_of(membership) as peers,
            asyncio.TaskGroup() as moves,  # ends before the channels are closed
        ):
            await servers.create_tables(membership.claimant)
            await peers.meet()
            self._reducer = await self._join_sums(membership, servers)
            caches = await run_in(caller, partial(row_caches, job.tables, slots, device, gathers=job.sync.keeps_copies))
            dense = await run_in(caller, self._training.model_of, job, self._reducer, device)
            steps = Steps(job, caches, dense, device)
            tables = [
                TableMover(cache, table, peers, membership, self._reading_thread)
                for cache, table in zip(caches, servers.tables, strict=True)
            ]
            mover = RowMover(tables, servers, peers, moves, membership)

            def report(flushed: FlushReport) -> asyncio.Future[None]:
                return messages.report(self._with_link(flushed))

            def confirm(trained: IterationReport) -> object:
                return messages.confirm(self._with_link(trained))

            checkpoints = WorkerCheckpoints(membership, mover, dense, caller, report, settings.storage_timeout)
            checkpoints.check_model_fits()
            if membership.iteration:
                await checkpoints.go_back(await _expect(Reload, messages), book)
            else:
                await self._agree(membership, await run_in(caller, dense.save))

            def begin(current: IterationTransfers, rows_trained: RowsTrained) -> Step:
                enter(current.span)
                current.write()
                plan = current.plan if values is None else values.completed(current.plan)
                return steps.begin(plan, rows_trained)

            self._loop = TrainingLoop(
                messages,
                book,
                mover,
                lambda current, rows_trained: caller.train(partial(begin, current, rows_trained)),
                self._link,
                confirm,
                checkpoints.take,
                sync=job.sync,
            )
            await checkpoints.finish(await self._loop.run())
            end = await _expect(EndOfStream, messages)
            _log.info("the stream has ended after %d iterations", end.iterations)

    def phase(self) -> WorkerPhase:
        """Returns the worker's present activity, for its heartbeats."""
        if self._reducer is not None and self._reducer.waiting:
            return WorkerPhase.ALL_REDUCE
        return self._loop.phase if self._loop is not None else WorkerPhase.IDLE

    def close(self) -> None:
        """Leaves the sums and lets go of the threads, none of which is waited for."""
        if self._reducer is not None:
            self._group_thread.submit(self._reducer.close)
        self._group_thread.end()
        self._reading_thread.shutdown(wait=False)

    def _with_link(self, report: R) -> R:
        """Adds everything that the link has carried since the report before."""
        return replace(report, transfers=report.transfers + self._link.count.take())

    async def _join_sums(self, membership: Membership, servers: ParameterServers) -> DenseReducer:
        return await join_sums(
            Meeting(
                membership,
                servers,
                self._group_store(membership),
                self._host,
                self._training.device,
                self._settings.peer_timeout,
                RingLink(self._lan, asyncio.get_running_loop()),
                self._group_thread,
            )
        )

    @asynccontextmanager
    async def _peers_of(self, membership: Membership) -> AsyncIterator[Peers]:
        """Lets the other workers send rows here, and gives the way to them."""
        tables, within = membership.job.tables, self._settings.peer_timeout
        inbox = Inbox(membership.epoch, membership.slot, membership.iteration, tables, within)
        self._service.deliveries.begin(inbox, self._lan)
        try:
            async with aclosing(Peers(membership, inbox, self._lan, self._settings)) as peers:
                yield peers
        finally:
            self._service.deliveries.end()

    async def _agree(self, membership: Membership, saved: bytes) -> None:
        """Compares the dense parameters before the first iteration, which must be the same on every worker.

        Raises:
            FailedPrecondition: they differ from the first member's.
        """
        checksum, within = sha256(saved).digest(), self._settings.peer_timeout
        if membership.leads:
            if len(membership.members) > 1:
                await self._dispatcher.put_group_key(self._lease, membership.epoch, _DENSE_KEY, checksum)
            return
        key = self._dispatcher.get_group_key(self._lease, membership.epoch, _DENSE_KEY, within=within)
        if await key != checksum:
            raise FailedPrecondition(
                f"worker {self._settings.name} begins with other dense parameters, or another optimizer, than the "
                "first worker: seed torch with the same number before the model is built"
            )

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
