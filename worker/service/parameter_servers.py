"""The parameter servers of a job."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from typing import TypeVar

from esd.services.clients.checkpoints import CheckpointClient
from esd.services.clients.parameter_server import ParameterServerConnection
from esd.services.clients.rows import RowClient
from esd.services.clients.sums import SumClient
from esd.services.domain.errors import StorageUnwritable, Unavailable
from esd.services.domain.jobs import JobSpec
from esd.services.domain.sum_pieces import SumMember
from esd.services.domain.worker_set import WorkerSet
from esd.services.runtime.retry import repeated
from esd.services.runtime.security import Credentials
from esd.services.runtime.tasks import all_of
from esd.worker.service.link import Link, TrafficBeside
from esd.worker.service.settings import WorkerSettings

T = TypeVar("T")


class ParameterServers:
    """All tables of a job at all parameter servers. Calls are repeated while a server is unavailable.

    Attributes:
        tables: the rows of each table, by number. Their frames share a stream to every server.
    """

    def __init__(self, job: JobSpec, worker: int, link: Link, settings: WorkerSettings, epoch: int = 0) -> None:
        """Opens a channel to every server of the job; `aclose` closes them.

        Args:
            job: the job.
            worker: slot of this worker.
            link: shared by all traffic.
            settings: of this worker.
            epoch: of all requests; the servers refuse a request of an epoch that is over.
        """
        self._worker = worker
        self._epoch = epoch
        self._patience = settings.retry_timeout
        self._storage_patience = settings.storage_timeout
        self._link = link
        self._sums: SumClient | None = None
        credentials = Credentials.read(settings)
        self._connections = [
            ParameterServerConnection(
                address,
                timeout=settings.peer_timeout,
                traffic=link,
                max_message_bytes=settings.max_message_bytes,
                credentials=credentials,
                caller=settings.name,
                patience={Unavailable: settings.retry_timeout, StorageUnwritable: settings.storage_timeout},
                listed=(place, len(job.parameter_servers)),
            )
            for place, address in enumerate(job.parameter_servers)
        ]
        self._participants = [CheckpointClient(server, table) for table in job.tables for server in self._connections]
        self._first = self._participants[0]
        self.tables = tuple(RowClient(self._connections, table, self._with_room) for table in job.tables)

    async def aclose(self) -> None:
        """Ends the sums, and closes all channels."""
        if self._sums is not None:
            await self._sums.close()
        await all_of(server.close() for server in self._connections)

    async def create_tables(self, claimant: bytes = b"") -> None:
        """Creates the job's tables where they do not exist, and claims them unless `claimant` is empty.

        Raises:
            FailedPrecondition: the training of a table has ended, or another job holds it.
        """
        for table in self.tables:
            await table.create(claimant)

    @property
    def max_dense_bytes(self) -> int:
        """The most bytes of dense parameters that the first server stores; known when the tables are created."""
        return self._connections[0].max_dense_bytes

    async def join_sums(self, members: WorkerSet, patience: float) -> SumClient:
        """Opens the streams on which the servers sum vectors over all members; returns when all have come.

        Args:
            members: the slots that train in the epoch.
            patience: seconds to wait for the others, here and in every sum.

        Raises:
            DeadlineExceeded: not all members came in time.
            Unavailable: a server, or a member, is away for too long.
        """
        table, instance = self.tables[0].table.name, secrets.randbits(64)
        member = SumMember(table, self._epoch, self._worker, members, patience, instance)
        self._sums = SumClient(self._connections, member, TrafficBeside(self._link))
        await self._sums.join(self._patience)
        return self._sums

    async def put_dense(self, data: bytes) -> None:
        """Stores the dense parameters, a whole .npz file, with the first table at the first server."""
        await self._repeated(lambda: self._first.put_dense(data, epoch=self._epoch))

    async def cut(self, checkpoint: int, contributors: WorkerSet, *, last: bool = False) -> None:
        """Reports to every server, for each table, that this worker has pushed everything before the checkpoint.

        With `last` the job ends there without a checkpoint: a table is finished when all contributors have reported.
        """

        async def cut(participant: CheckpointClient) -> None:
            await self._repeated(
                lambda: participant.cut(checkpoint, self._worker, contributors, epoch=self._epoch, last=last)
            )

        await all_of(map(cut, self._participants))

    async def put_part(self, checkpoint: int, name: str, data: bytes) -> None:
        """Stores a part of a checkpoint with the first table at the first server."""
        await self._repeated(lambda: self._first.put_part(checkpoint, name, data, epoch=self._epoch))

    async def get_part(self, checkpoint: int, name: str) -> bytes:
        """Reads a part of a checkpoint."""
        return await self._repeated(lambda: self._first.get_part(checkpoint, name))

    async def _with_room(self, call: Callable[[], Awaitable[T]]) -> T:
        """Makes a call that training cannot do without, and waits for room where a store is full."""
        return await repeated(lambda: self._repeated(call), self._storage_patience, on=StorageUnwritable)

    async def _repeated(self, call: Callable[[], Awaitable[T]]) -> T:
        return await repeated(call, self._patience)
