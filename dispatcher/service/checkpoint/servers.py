"""The parameter servers, as the keepers of a job's checkpoints and of its sample log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from esd.dispatcher.service.settings import DispatcherSettings
from esd.services.clients.parameter_server import AsyncParameterServerClient, StoredState
from esd.services.domain.batches import LogEntry
from esd.services.domain.errors import FailedPrecondition, StaleEpoch, StorageUnwritable
from esd.services.domain.jobs import JobSpec
from esd.services.runtime.retry import AWAY, repeated
from esd.services.runtime.security import Credentials

_CALL_SECONDS = 60.0
_TAKEOVERS = 5  # attempts; another one is needed when somebody else has begun the same epoch a moment before

_log = logging.getLogger(__name__)

T = TypeVar("T")


class CheckpointStore:
    """Calls to all tables of one job on all shards; repeated while a server is away or hangs.

    Every table has a history of its own on every shard: a participant of a checkpoint is a table on a shard. The first
    table on the first shard keeps the manifest, the parts and the sample log.

    No two dispatchers have their workers train in one epoch, whatever they do at once and however late their calls
    arrive. Each participant gives an epoch to one dispatcher only, and never goes back to a lower number, unless it
    loses all that it had, which ends the job; workers get plans of an epoch when all participants have given it to
    their dispatcher (`restore`).

    One of those that are after a job gets it whole. Every epoch is begun at the first participant before the others
    hear of it, so the first one puts the dispatchers in an order: whoever takes over (`take_over`) is told by `find` of
    all numbers so far, and begins with a higher one, from which on those before are refused there, and end. What they
    have still under way to the other participants has lower numbers, and cannot refuse the later ones of the last
    dispatcher. Only a participant that lost rows may be ahead of it, in an epoch of its own; it then takes a number
    above that, as whenever an epoch begins. Nobody who was refused comes back, so this has an end.
    """

    def __init__(self, job: JobSpec, settings: DispatcherSettings) -> None:
        """Opens a channel to every shard; `close` closes them."""
        self._table = job.table.name
        self._patience = settings.recovery_seconds
        self._storage_patience = settings.storage_seconds
        credentials = Credentials.read(settings)
        self._shards = [
            AsyncParameterServerClient(
                address,
                job.table,
                timeout=_CALL_SECONDS,
                max_message_bytes=settings.max_message_bytes,
                credentials=credentials,
                listed=(place, len(job.parameter_servers)),
            )
            for place, address in enumerate(job.parameter_servers)
        ]
        self._participants = [shard.of_table(table) for table in job.tables for shard in self._shards]
        self._first = self._participants[0]

    async def close(self) -> None:
        """Closes all channels."""
        for shard in self._shards:
            await shard.close()

    async def find(self) -> StoredState:
        """Makes sure that the tables are there, and tells what is stored of them. Does not wait for absent servers.

        Raises:
            Unavailable: a server is away.
            StorageUnwritable: a store is full or read-only.
            FailedPrecondition: a table exists with another specification.
        """

        async def find(participant: AsyncParameterServerClient) -> StoredState:
            await participant.create_table()
            return await participant.get_checkpoint()

        found = await asyncio.gather(*map(find, self._participants))
        return StoredState(
            epoch=max(each.epoch for each in found),
            manifest=found[0].manifest,
            rows=sum(each.rows for each in found),
            durable=found[0].durable,
            finished=all(each.finished for each in found),
        )

    async def committed(self) -> StoredState:
        """Returns the committed checkpoint, and the latest epoch.

        Raises:
            FailedPrecondition: there is none any more.
            StorageUnwritable: a store has been full or read-only for too long.
            Unavailable: a server is away for too long.
        """
        stored = await self.with_room(lambda: self._repeated(self.find))
        if not stored.manifest:
            raise FailedPrecondition(
                f"the parameter server has lost table {self._table!r}: it was restarted and its store is memory, "
                "which a store in Redis or a checkpoint directory (ESD_PS_CHECKPOINT_DIR) would have survived, or its "
                "Redis is empty"
            )
        return stored

    async def take_over(self, check: Callable[[StoredState], object]) -> int:
        """Begins an epoch at the first participant: nothing of another dispatcher is logged or committed from now on.

        Args:
            check: looks at what is stored first; if it raises, nothing has changed for whoever has the table.

        Returns:
            The epoch.

        Raises:
            StaleEpoch: again and again another dispatcher has taken the table over at the same moment.
            FailedPrecondition: whatever `check` raises; a table exists with another specification.
            Unavailable: a server is away.
        """
        for attempt in range(_TAKEOVERS):
            found = await self.find()
            check(found)
            try:
                await self.begin_epoch(found.epoch + 1, takes_over=True)
            except StaleEpoch as error:
                _log.warning("attempt %d to take table %r over came second: %s", attempt + 1, self._table, error)
            else:
                return found.epoch + 1
        raise StaleEpoch(
            f"{_TAKEOVERS} times another dispatcher began with table {self._table!r} at the same moment; end the "
            "others, or leave the job to them"
        )

    async def begin_epoch(self, epoch: int, *, takes_over: bool = False) -> None:
        """Begins an epoch at the first participant, with the rows as they are.

        Args:
            epoch: its number.
            takes_over: whether the table may be another dispatcher's.

        Raises:
            FailedPrecondition: another dispatcher has taken the table over.
            StaleEpoch: a later epoch has begun, or another dispatcher has begun this one.
            Unavailable: the first server is away for too long.
        """
        await self._repeated(lambda: self._first.begin_epoch(epoch, takes_over=takes_over))

    async def restore(self, checkpoint: int, epoch: int) -> None:
        """Puts every participant back to a checkpoint and begins an epoch there.

        Raises:
            FailedPrecondition: another dispatcher has taken the table over; a server cannot go back.
            StaleEpoch: a server is in a later epoch; try again with one above it.
            Unavailable: a server is away for too long.
        """
        await self.begin_epoch(epoch)
        await self._on_all(lambda each: each.restore(checkpoint, epoch=epoch, within=self._patience))

    async def put_part(self, checkpoint: int, name: str, data: bytes, epoch: int) -> None:
        """Stores a part at the first participant."""
        await self._repeated(lambda: self._first.put_part(checkpoint, name, data, epoch=epoch))

    async def get_part(self, checkpoint: int, name: str) -> bytes:
        """Reads a part from the first participant."""
        return await self._repeated(lambda: self._first.get_part(checkpoint, name, within=_CALL_SECONDS))

    async def save(self, checkpoint: int, epoch: int) -> tuple[int, int]:
        """Makes every participant's share of a cut durable.

        Returns:
            How many rows have changed since the cut before, of all tables on all shards, and the bytes that they take.
        """
        saved = await self._on_all(lambda each: each.save(checkpoint, epoch=epoch))
        return sum(rows for rows, _ in saved), sum(size for _, size in saved)

    async def commit(self, checkpoint: int, epoch: int, manifest: bytes, keep: int, *, finished: bool = False) -> None:
        """Makes a checkpoint valid at the first participant, then at the others; the last `keep` of them stay.

        With `finished` the job has ended, and nothing is written to its tables any more.
        """

        async def commit(participant: AsyncParameterServerClient, manifest: bytes) -> None:
            await self._repeated(
                lambda: participant.commit(checkpoint, manifest, keep, epoch=epoch, finished=finished),
            )

        await commit(self._first, manifest)
        await asyncio.gather(*(commit(other, b"") for other in self._participants[1:]))

    async def append_samples(self, entry: LogEntry, epoch: Callable[[], int]) -> None:
        """Adds to the sample log, at the first participant. `epoch` tells the present one.

        Raises:
            StaleEpoch: another dispatcher has taken the job over, or the server has lost its rows.
            StorageUnwritable: its disk has been full or read-only for too long.
            Unavailable: the server is away for too long.
        """

        async def append() -> None:
            # An epoch that has just begun here begins at the server a moment later.
            await repeated(
                lambda: self._first.append_samples(entry, epoch=epoch()), self._patience, on=(StaleEpoch, *AWAY)
            )

        await self.with_room(append)

    async def read_samples(self, epoch: int) -> list[LogEntry]:
        """Reads the sample log, at the first participant."""
        return await self._repeated(lambda: self._first.read_samples(epoch=epoch))

    async def trim_samples(self, position: int | None, epoch: int) -> None:
        """Drops what lies before a position of the sample log; None: everything."""
        await self._repeated(lambda: self._first.trim_samples(position, epoch=epoch))

    async def with_room(self, call: Callable[[], Awaitable[T]]) -> T:
        """Makes calls again while a store is full or read-only, for as long as that may last."""
        told = False

        async def attempt() -> T:
            nonlocal told
            try:
                return await call()
            except StorageUnwritable as error:
                if not told:
                    _log.warning("the job waits up to %g s for room: %s", self._storage_patience, error)
                told = True
                raise

        return await repeated(attempt, self._storage_patience, on=StorageUnwritable)

    async def _on_all(self, call: Callable[[AsyncParameterServerClient], Awaitable[T]]) -> list[T]:
        return await asyncio.gather(*(self._repeated(partial(call, each)) for each in self._participants))

    async def _repeated(self, call: Callable[[], Awaitable[T]]) -> T:
        return await repeated(call, self._patience, on=AWAY)
