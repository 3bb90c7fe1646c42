"""The parameter servers of a job, as one table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from services.clients.parameter_server import AsyncParameterServerClient
from services.domain.errors import StorageUnwritable
from services.domain.ids import shard_of
from services.domain.jobs import JobSpec
from services.domain.rows import Push
from services.domain.worker_set import WorkerSet
from services.runtime.retry import repeated
from services.runtime.security import Credentials
from worker.service.link import Link
from worker.service.settings import WorkerSettings
from worker.service.tasks import all_of

_NONE = np.empty(0, np.int64)

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
            )
            for address in job.parameter_servers
        ]

    async def aclose(self) -> None:
        """Closes all channels."""
        for shard in self._shards:
            await shard.close()

    async def create_table(self) -> None:
        """Makes sure that every shard has the job's table. Raises FailedPrecondition if its training has ended."""
        await all_of(self._with_room(partial(shard.create_table, to_train=True)) for shard in self._shards)

    async def pull(self, ids: NDArray[np.uint64], versions: NDArray[np.int64], rows: NDArray[np.float32]) -> int:
        """Fills `rows`, float32 [r, W], with the rows of `ids` at exactly `versions`; returns the bytes received.

        Raises:
            StaleVersion: a row is already newer.
            DeadlineExceeded: a version did not appear in time.
        """

        async def pull(index: int, part: NDArray[np.int64]) -> int:
            shard = self._shards[index]
            return await self._repeated(lambda: shard.pull(ids[part], versions[part], rows, part, epoch=self._epoch))

        return sum(await all_of(pull(index, part) for index, part in self._parts(ids)))

    async def push(self, push: Push) -> int:
        """Stores rows and gradients durably; returns the bytes sent.

        Raises:
            FailedPrecondition: a gradient skips a version, or contributors disagree.
        """
        rows, gradients = dict(self._parts(push.rows.ids)), dict(self._parts(push.gradients.ids))

        async def push_to(index: int) -> int:
            part = Push(push.rows[rows.get(index, _NONE)], push.gradients[gradients.get(index, _NONE)])
            answer = await self._with_room(lambda: self._shards[index].push(part, epoch=self._epoch))
            return answer.bytes_sent

        return sum(await all_of(push_to(index) for index in rows.keys() | gradients.keys()))

    async def forget(self, ids: NDArray[np.uint64], below: int) -> None:
        """Takes the rows whose version is below `below` out of the table."""

        async def forget(index: int, part: NDArray[np.int64]) -> None:
            await self._with_room(lambda: self._shards[index].forget(ids[part], below, epoch=self._epoch))

        await all_of(forget(index, part) for index, part in self._parts(ids))

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

    def _parts(self, ids: NDArray[np.uint64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Yields each shard's index and the positions in `ids` of its rows; shards without any are left out."""
        owners = shard_of(ids, len(self._shards))
        for index in range(len(self._shards)):
            part = np.flatnonzero(owners == index)
            if len(part):
                yield index, part
