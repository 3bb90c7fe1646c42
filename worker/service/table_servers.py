"""The parameter servers of one table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esd.services.clients.frames import Frame
from esd.services.clients.parameter_server import AsyncParameterServerClient
from esd.services.domain.frames import Parcel, Pulls
from esd.services.domain.ids import shard_of
from esd.services.domain.tables import TableSpec
from esd.services.runtime.tasks import all_of

Patiently = Callable[[Callable[[], Awaitable[Any]]], Coroutine[Any, Any, Any]]


class TableServers:
    """The rows of a table by id, wherever their shard is.

    Args:
        spec: the table.
        shards: clients of it, in shard order.
        epoch: in all requests; the servers refuse those of an epoch that is over.
        patiently: repeats a call while a shard is unavailable or has no room.

    Attributes:
        spec: the table.
    """

    def __init__(
        self, spec: TableSpec, shards: Sequence[AsyncParameterServerClient], epoch: int, patiently: Patiently
    ) -> None:
        self.spec = spec
        self._shards = shards
        self._epoch = epoch
        self._patiently = patiently

    async def create(self, claimant: bytes) -> None:
        """Makes sure that every shard has the table, and claims it unless `claimant` is empty.

        Of jobs that claim it at once one gets all of it, since the first shard is asked before the others.

        Raises:
            FailedPrecondition: its training has ended, or it is another job's.
        """
        first, *others = (partial(shard.create_table, to_train=True, claimant=claimant) for shard in self._shards)
        await self._patiently(first)
        await all_of(map(self._patiently, others))

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

    async def forget(self, ids: NDArray[np.uint64], below: int) -> None:
        """Takes the rows whose version is below `below` out of the table."""

        async def forget(shard: AsyncParameterServerClient, part: NDArray[np.uint64]) -> None:
            if len(part):
                await self._patiently(lambda: shard.forget(part, below, epoch=self._epoch))

        owners = shard_of(ids, len(self._shards))
        await all_of(forget(shard, ids[owners == index]) for index, shard in enumerate(self._shards))

    async def _carry(self, parcel: Parcel, rows: NDArray[np.float32] | None = None) -> list[Frame]:
        each = await all_of(
            self._shards[index].carry(part, rows, epoch=self._epoch)
            for index, part in parcel.by_shard(len(self._shards))
        )
        return [frame for frames in each for frame in frames]
