"""The parameter servers of a job, as one table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from services.clients.frames import Frame
from services.clients.parameter_server import AsyncParameterServerClient
from services.domain.errors import StorageUnwritable, Unavailable
from services.domain.frames import Parcel, Pulls
from services.domain.ids import shard_of
from services.domain.jobs import JobSpec
from services.domain.worker_set import WorkerSet
from services.runtime.retry import repeated
from services.runtime.security import Credentials
from worker.service.link import Link
from worker.service.settings import WorkerSettings
from worker.service.tasks import all_of

T = TypeVar("T")


class ParameterServers:
    """Rows by id, wherever their shard is. Calls are repeated while a shard is unavailable."""

    def __init__(self, job: JobSpec, worker: int, link: Link, settings: WorkerSettings, epoch: int = 0) -> None:
        """Opens a channel to every shard of the job; `aclose` closes them.

        Args:
            job: whose table it is.
            worker: slot of this worker.
            link: what all traffic shares.
            settings: of this worker.
            epoch: in all requests; the servers refuse those of an epoch that is over.
        """
        self._worker = worker
        self._epoch = epoch
        self._patience = settings.retry_timeout
        self._storage_patience = settings.storage_timeout
        credentials = Credentials.read(settings)
        self._shards = [
            AsyncParameterServerClient(
                address,
                job.table,
                timeout=settings.peer_timeout,
                traffic=link,
                max_message_bytes=settings.max_message_bytes,
                credentials=credentials,
                caller=settings.name,
                patience={Unavailable: settings.retry_timeout, StorageUnwritable: settings.storage_timeout},
            )
            for address in job.parameter_servers
        ]

    async def aclose(self) -> None:
        """Closes all channels."""
        await all_of(shard.close() for shard in self._shards)

    async def create_table(self) -> None:
        """Makes sure that every shard has the job's table. Raises FailedPrecondition if its training has ended."""
        await all_of(self._with_room(partial(shard.create_table, to_train=True)) for shard in self._shards)

    async def pull(self, ids: NDArray[np.uint64], versions: NDArray[np.int64], rows: NDArray[np.float32]) -> int:
        """Fills `rows`, float32 [r, W], with the rows of `ids` at exactly `versions`; returns the bytes received.

        Raises:
            StaleVersion: a row is already newer.
            DeadlineExceeded: a version did not appear in time.
        """
        parcel = Parcel.of(pulls=Pulls(ids, versions, np.arange(len(ids))))
        return sum(frame.pull_bytes for frame in await self._carry(parcel, rows))

    async def push(self, parcel: Parcel) -> int:
        """Stores what a parcel of any size pushes durably; returns the bytes sent.

        Raises:
            FailedPrecondition: a gradient skips a version, or contributors disagree.
        """
        return sum(frame.push_bytes for frame in await self._carry(parcel))

    def exchange(self, parcel: Parcel, rows: NDArray[np.float32], *, urgent: bool) -> list[Frame]:
        """Sends a parcel as soon as it may be sent, and returns at once: what is pushed has been read.

        Args:
            parcel: what to push, and what to pull.
            rows: float32 [.., W], where the pulled rows go.
            urgent: it goes before what is not, and was not sent yet.

        Returns:
            The frames that carry it, whose futures tell what becomes of it.
        """
        return [
            frame
            for index, part in parcel.by_shard(len(self._shards))
            for frame in self._shards[index].exchange(part, rows, epoch=self._epoch, urgent=urgent)
        ]

    async def _carry(self, parcel: Parcel, rows: NDArray[np.float32] | None = None) -> list[Frame]:
        each = await all_of(
            self._shards[index].carry(part, rows, epoch=self._epoch)
            for index, part in parcel.by_shard(len(self._shards))
        )
        return [frame for frames in each for frame in frames]

    async def forget(self, ids: NDArray[np.uint64], below: int) -> None:
        """Takes the rows whose version is below `below` out of the table."""

        async def forget(shard: AsyncParameterServerClient, part: NDArray[np.uint64]) -> None:
            if len(part):
                await self._with_room(lambda: shard.forget(part, below, epoch=self._epoch))

        owners = shard_of(ids, len(self._shards))
        await all_of(forget(shard, ids[owners == index]) for index, shard in enumerate(self._shards))

    async def put_dense(self, data: bytes) -> None:
        """Stores the dense parameters, a whole .npz file, at the first shard."""
        await self._repeated(lambda: self._shards[0].put_dense(data))

    async def cut(self, checkpoint: int, contributors: WorkerSet, *, last: bool = False) -> None:
        """Tells every shard that this worker has pushed everything of the iterations before the checkpoint.

        With `last` there is none: the job ends there, and its table is finished when all contributors have told so.
        """

        async def cut(shard: AsyncParameterServerClient) -> None:
            await self._repeated(
                lambda: shard.cut(checkpoint, self._worker, contributors, epoch=self._epoch, last=last)
            )

        await all_of(cut(shard) for shard in self._shards)

    async def put_part(self, checkpoint: int, name: str, data: bytes) -> None:
        """Stores a part of a checkpoint at the first shard."""
        await self._repeated(lambda: self._shards[0].put_part(checkpoint, name, data))

    async def get_part(self, checkpoint: int, name: str) -> bytes:
        """Reads a part of a checkpoint from the first shard."""
        return await self._repeated(lambda: self._shards[0].get_part(checkpoint, name))

    async def _with_room(self, call: Callable[[], Awaitable[T]]) -> T:
        """Makes a call that training cannot do without, and waits for room where a store is full."""
        return await repeated(lambda: self._repeated(call), self._storage_patience, on=StorageUnwritable)

    async def _repeated(self, call: Callable[[], Awaitable[T]]) -> T:
        return await repeated(call, self._patience)
