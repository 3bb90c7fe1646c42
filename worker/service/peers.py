"""The other workers of a job in one epoch, to which rows go directly."""

from __future__ import annotations

from dataclasses import replace

from esd.services.clients.frame import Frame
from esd.services.clients.worker import AsyncWorkerClient
from esd.services.domain.errors import EsdError, FailedPrecondition, StaleEpoch
from esd.services.domain.plans import Membership
from esd.services.domain.rows import RowBlock
from esd.services.domain.tables import TableSpec
from esd.services.runtime.security import Credentials
from esd.services.runtime.tasks import all_of
from esd.worker.service.inbox import Inbox
from esd.worker.service.link import Link, TrafficBeside
from esd.worker.service.settings import WorkerSettings


class Peers:
    """Sends rows to the other workers, and owns the inbox for the rows that they send.

    Args:
        membership: has the addresses of the other workers.
        inbox: of this worker.
        link: to the other workers.
        settings: of this worker.

    Attributes:
        inbox: as above.
    """

    def __init__(self, membership: Membership, inbox: Inbox, link: Link, settings: WorkerSettings) -> None:
        """Opens a channel to every other worker; `aclose` closes them."""
        self.inbox = inbox
        self._membership = membership
        self._settings = settings
        credentials = replace(Credentials.read(settings), server_name=settings.tls_peer_name)
        self._clients = {
            slot: AsyncWorkerClient(
                address,
                slot,
                timeout=settings.peer_timeout,
                patience=settings.retry_timeout,
                traffic=TrafficBeside(link),
                max_message_bytes=settings.max_message_bytes,
                credentials=credentials,
                caller=settings.name,
            )
            for slot, address in enumerate(membership.peers)
            if address
        }

    async def aclose(self) -> None:
        """Closes the inbox, and then all channels."""
        await self.inbox.close()
        await all_of(client.close() for client in self._clients.values())

    async def meet(self) -> None:
        """Returns when every other worker has been reached in this epoch.

        Raises:
            FailedPrecondition: a worker cannot be reached, and no iteration of this job has been trained.
            EsdError: a worker cannot be reached, although one has been before.
        """
        await all_of(self._meet(slot) for slot in self._clients)

    def deliver(self, slot: int, spec: TableSpec, rows: RowBlock, iteration: int, *, urgent: bool) -> list[Frame]:
        """Queues rows for the worker in a slot, which trains them in an iteration; they have been copied on return.

        Raises:
            FailedPrecondition: rows go to no worker in this slot directly.
        """
        if slot not in self._clients:
            raise FailedPrecondition(f"iteration {iteration} has rows for the worker in slot {slot}, which is no peer")
        return self._clients[slot].deliver(spec, rows, iteration, epoch=self._membership.epoch, urgent=urgent)

    async def _meet(self, slot: int) -> None:
        membership, settings = self._membership, self._settings
        try:
            await self._clients[slot].meet(membership.epoch, settings.peer_timeout)
        except StaleEpoch:
            raise
        except EsdError as error:
            # After a first successful start a lost peer is a network fault, so the error stays retryable.
            begins = membership.iteration == membership.job.first_iteration
            kind = FailedPrecondition if begins else type(error)
            raise kind(
                f"worker {settings.name} cannot reach the worker in slot {slot} at {membership.peers[slot]}, to which "
                f"rows go directly: {error}; let each worker listen (ESD_WORKER_LISTEN) and advertise "
                "(ESD_WORKER_ADVERTISE_HOST) where the others reach it, or train without --direct"
            ) from error
