"""A worker's part in one job, from its registration to the end of the sample stream, epoch by epoch."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from esd.services.clients.attendance import Attendance
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.domain.errors import EsdError, FailedPrecondition, NotFound, StaleEpoch, StaleVersion
from esd.services.domain.reports import FailureReport, Lease, Registration, WorkerPhase
from esd.services.runtime.leavable_thread import LeavableThread
from esd.services.runtime.retry import AWAY
from esd.services.runtime.security import Credentials
from esd.services.runtime.settings import join_address, split_address
from esd.services.runtime.site_values import SiteValues
from esd.services.runtime.tasks import any_of
from esd.worker.service.caller import Caller
from esd.worker.service.epoch import Training, WorkerEpoch
from esd.worker.service.link import Link, TrafficBeside
from esd.worker.service.servicer import WorkerService
from esd.worker.service.settings import WorkerSettings

_CALL_SECONDS = 10.0  # for calls that the dispatcher answers at once

# What another epoch may mend: somebody is away, late, or ahead. Anything else would only happen again.
_PASSING = (NotFound, StaleEpoch, StaleVersion, *AWAY)

_log = logging.getLogger(__name__)


class WorkerJob:
    """Registers, trains the planned iterations, flushes, leaves. An epoch that breaks is followed by the next one.

    Args:
        settings: of this worker.
        address: `host:port` of its own gRPC service.
        service: is told when there is something to describe.
        caller: makes calls in the thread that trains.
        training: the model to train, and its device.
    """

    def __init__(
        self, settings: WorkerSettings, address: str, service: WorkerService, caller: Caller, training: Training
    ) -> None:
        host, port = split_address(address)
        self._host = settings.advertise_host.removeprefix("[").removesuffix("]") or host
        self._registration = Registration(
            settings.name,
            settings.link,
            settings.cache_rows,
            address=join_address(self._host, port),
            least_samples=settings.least_samples,
            most_samples=settings.most_samples,
            lan=settings.lan,
            site=settings.site,
            may_rest=training.may_rest,
        )
        self._settings = settings
        self._service = service
        self._caller = caller
        self._training = training
        self._epoch: WorkerEpoch | None = None
        self._values: SiteValues | None = None
        self._dispatcher = AsyncDispatcherClient(
            settings.dispatcher,
            timeout=_CALL_SECONDS,
            patience=settings.retry_timeout,
            max_message_bytes=settings.max_message_bytes,
            credentials=Credentials.read(settings),
            caller=settings.name,
        )

    async def run(self) -> None:
        """Takes part in one job until its stream ends. Call it once.

        Raises:
            EsdError: a plan was refused, the job failed, or it takes no checkpoints and a peer is lost; or the site's
                values are not there, or damaged.
        """
        try:
            if self._settings.site_values is not None:
                self._values = await self._read_values(self._settings.site_values)
            lease = await self._register(self._settings.job_timeout)
            _log.info("registered")
            while True:
                next_lease = await self._attend(lease)
                if next_lease is None:
                    return
                lease = next_lease
        finally:
            await self._dispatcher.close()

    async def _read_values(self, folder: Path) -> SiteValues:
        thread = LeavableThread("esd-values")  # it may read for minutes, which a worker that is stopped does not await
        try:
            return await asyncio.wrap_future(thread.submit(_checked, folder, self._settings.site))
        finally:
            thread.end()

    async def _register(self, patience: float) -> Lease:
        return await self._dispatcher.register(self._registration, wait_for_job=patience)

    async def _attend(self, lease: Lease) -> Lease | None:
        """Takes part in one epoch. Returns the lease for the next one, or None at the end of the stream."""
        link = Link(self._settings.link, shape=self._settings.shape_link)
        attending = self._dispatcher.attend_here(lease, phase=self._phase, traffic=TrafficBeside(link))
        async with attending as attendance:
            self._epoch = WorkerEpoch(
                self._settings,
                attendance,
                link,
                self._dispatcher,
                lease,
                self._host,
                self._service,
                self._caller,
                self._training,
                self._values,
            )
            try:
                await _see_through(self._epoch, attendance)
            except EsdError as error:
                return await self._recover_from(error, self._epoch, attendance, lease)
        return None

    def _phase(self) -> WorkerPhase:
        return self._epoch.phase() if self._epoch is not None else WorkerPhase.IDLE

    async def _recover_from(self, error: EsdError, epoch: WorkerEpoch, attendance: Attendance, lease: Lease) -> Lease:
        """Returns the lease for the next epoch when another one makes sense, and raises the error otherwise."""
        membership = epoch.membership
        if membership is None:  # it waits for an epoch to begin
            return await self._lease_after(error, lease)
        passing = isinstance(error, _PASSING)
        if passing and not membership.job.takes_checkpoints:
            raise error
        _log.warning("epoch %d is over for this worker: %s", membership.epoch, error)
        try:
            await self._tell(FailureReport(str(error), membership.epoch, fatal=not passing), attendance, lease)
        except EsdError as failure:
            if passing:
                return await self._lease_after(failure, lease)
        if not passing:
            raise error
        return lease

    async def _tell(self, failure: FailureReport, attendance: Attendance, lease: Lease) -> None:
        """Reports a failure. One that ends the job is told until it is heard, in a later epoch if need be.

        Another worker that misses this one may have ended the epoch. The job would wait for this worker in vain.
        """
        try:
            await attendance.report(failure)
        except StaleEpoch:
            async with self._dispatcher.attend_here(lease) as later:
                await self._tell(failure, later, lease)

    async def _lease_after(self, error: EsdError, lease: Lease) -> Lease:
        """Returns the lease for the next epoch after an error of the dispatcher, and raises a final error.

        A lost lease is replaced: it has expired, or the dispatcher has restarted. A dispatcher that is away is waited
        for as at the start, because a worker without a dispatcher has no other work.
        """
        if isinstance(error, NotFound):
            return await self._register(self._settings.retry_timeout)
        if isinstance(error, AWAY):
            return await self._register(self._settings.job_timeout)
        if isinstance(error, StaleEpoch):
            return lease
        raise error


def _checked(folder: Path, site: str) -> SiteValues:
    """Opens the values of the worker's site, and reads all of them."""
    values = SiteValues(folder)
    if values.site != site:
        raise FailedPrecondition(
            f"{folder} has the values of site {values.site!r}, and the worker is at site {site!r} "
            "(ESD_WORKER_SITE_VALUES and ESD_WORKER_SITE, --site-values and --sites of a local run)"
        )
    values.check_content()
    return values


async def _see_through(epoch: WorkerEpoch, attendance: Attendance) -> None:
    """Runs one epoch to its end, or until its stream breaks, and then cancels all waiting."""
    try:
        await any_of((epoch.run(), attendance.broken()))
    finally:
        epoch.close()
