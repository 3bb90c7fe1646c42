"""The other workers of a job whose rows go directly, in one epoch."""

from __future__ import annotations

from dataclasses import replace

from esd.services.clients.frames import Frame
from esd.services.clients.worker import AsyncWorkerClient
from esd.services.domain.errors import EsdError, FailedPrecondition, StaleEpoch
from esd.services.domain.frames import RowPush
from esd.services.domain.plans import Membership
from esd.services.domain.tables import TableSpec
from esd.services.runtime.security import Credentials
from esd.services.runtime.tasks import all_of
from esd.worker.service.inbox import Inbox
from esd.worker.service.link import Link, TrafficBeside
from esd.worker.service.settings import WorkerSettings


class Peers:
    """Sends rows to the other workers, and has the inbox where theirs arrive.

    Args:
        membership: says who they are, and where.
        inbox: of this worker.
        link: what all traffic shares.
        settings: of this worker.
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
        """Takes no more rows, and closes all channels."""
        await self.inbox.close()
        await all_of(client.close() for client in self._clients.values())

    async def meet(self) -> None:
        """Returns when every other worker has been reached in this epoch.

        Raises:
            FailedPrecondition: one cannot be reached, and nothing has been trained in this job.
            EsdError: one cannot be reached any more.
        """
        await all_of(self._meet(slot) for slot in self._clients)

    def deliver(self, slot: int, spec: TableSpec, rows: RowPush, iteration: int, *, urgent: bool) -> list[Frame]:
        """Sends rows to the worker in a slot, which trains them in an iteration; returns at once, and they are read.

        Raises:
            FailedPrecondition: no other worker is there that rows go to directly.
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
            # What has trained before may do so again when the network is back.
            begins = membership.iteration == membership.job.first_iteration
            kind = FailedPrecondition if begins else type(error)
            raise kind(
                f"worker {settings.name} cannot reach the worker in slot {slot} at {membership.peers[slot]}, to which "
                f"rows go directly: {error}; let each worker listen (ESD_WORKER_LISTEN) and advertise "
                "(ESD_WORKER_ADVERTISE_HOST) where the others reach it, or train without --direct"
            ) from error
