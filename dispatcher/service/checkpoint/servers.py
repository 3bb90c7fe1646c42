"""The parameter servers as the store of a job's checkpoints and its sample log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from esd.dispatcher.service.settings import DispatcherSettings
from esd.services.clients.checkpoints import CheckpointClient, StoredState
from esd.services.clients.parameter_server import ParameterServerConnection
from esd.services.domain.batches import LogEntry
from esd.services.domain.errors import FailedPrecondition, StaleEpoch, StorageUnwritable
from esd.services.domain.footprint import loading_seconds
from esd.services.domain.jobs import JobSpec
from esd.services.runtime.retry import AWAY, repeated
from esd.services.runtime.security import Credentials

_CALL_SECONDS = 60.0
_TAKEOVERS = 5  # attempts; one fails when another dispatcher has begun the same epoch a moment before

_log = logging.getLogger(__name__)

T = TypeVar("T")


class CheckpointStore:
    """Calls to all tables of one job on all shards; repeated while a server is away or hangs.

    Every table has a history of its own on every shard: a participant of a checkpoint is a table on a shard. The first
    table on the first shard keeps the manifest, the parts and the sample log.

    Two dispatchers never train in the same epoch, however they interleave and however late their calls arrive. Each
    participant grants an epoch to one dispatcher only, and never returns to a lower number, unless it loses all its
    data, which ends the job. Workers get plans of an epoch only after all participants have granted it to their
    dispatcher (`restore`).

    If several dispatchers want a job, exactly one gets it. Every epoch begins at the first participant before the
    others learn of it, so the first participant puts the dispatchers in an order. A dispatcher that takes over
    (`take_over`) learns all epoch numbers so far from `find`, and begins a higher one. From then on the first
    participant refuses the earlier dispatchers, which end. Their calls that are still on the way to other participants
    carry lower numbers, and cannot block the later epochs of the last dispatcher. Only a participant that lost rows may
    be ahead of it, in an epoch of its own; the dispatcher then begins an epoch above that one, as at any restore. A
    refused dispatcher does not try again, so the contest ends.
    """

    def __init__(self, job: JobSpec, settings: DispatcherSettings) -> None:
        """Opens a channel to every shard; `close` closes them."""
        self._table = job.table.name
        self._addresses = job.parameter_servers
        self._recovery_seconds = settings.recovery_seconds
        self._storage_patience = settings.storage_seconds
        credentials = Credentials.read(settings)
        self._connections = [
            ParameterServerConnection(
                address,
                timeout=_CALL_SECONDS,
                max_message_bytes=settings.max_message_bytes,
                credentials=credentials,
                listed=(place, len(job.parameter_servers)),
            )
            for place, address in enumerate(job.parameter_servers)
        ]
        self._participants = [CheckpointClient(server, table) for table in job.tables for server in self._connections]
        self._first = self._participants[0]
        self._row_bytes = [table.row_bytes for table in job.tables for _ in self._connections]  # of each participant
        self._stored_bytes = [0] * len(self._participants)  # of each participant, as last seen

    async def close(self) -> None:
        """Closes all channels."""
        for server in self._connections:
            await server.close()

    async def find(self) -> StoredState:
        """Creates the tables where they are missing, and returns their stored state. Does not wait for absent servers.

        Raises:
            Unavailable: a server is away.
            StorageUnwritable: a store is full or read-only.
            FailedPrecondition: a table exists with another specification.
        """

        async def find(participant: CheckpointClient) -> StoredState:
            await participant.create_table()
            return await participant.get_checkpoint()

        found = await asyncio.gather(*map(find, self._participants))
        self._note_stored([each.rows for each in found])
        return StoredState(
            epoch=max(each.epoch for each in found),
            manifest=found[0].manifest,
            rows=sum(each.rows for each in found),
            durable=found[0].durable,
            finished=all(each.finished for each in found),
        )

    async def strayed(self, epoch: int) -> str:
        """Returns the address of a server that is in another epoch; empty if there is none. Waits for no absent server.

        The first table stands for all, because a server loses or keeps all of its tables together.

        Raises:
            Unavailable, DeadlineExceeded: a server is away.
        """
        participants = self._participants[: len(self._connections)]
        found = await asyncio.gather(*(each.get_checkpoint() for each in participants))
        return next((address for address, each in zip(self._addresses, found, strict=True) if each.epoch != epoch), "")

    async def committed(self) -> StoredState:
        """Returns the committed checkpoint, and the latest epoch.

        Raises:
            FailedPrecondition: the first server holds no checkpoint of the table any more.
            StorageUnwritable: a store has been full or read-only for too long.
            Unavailable: a server is away for too long.
        """
        stored = await self.with_room(lambda: self._repeated(self.find))
        if not stored.manifest:
            raise FailedPrecondition(
                f"the parameter server has lost table {self._table!r}: its Redis is empty, or its store is memory and "
                "it was restarted, which a store in Redis or a checkpoint directory survives "
                "(--checkpoint-dir of a local run, ESD_PS_CHECKPOINT_DIR of a server)"
            )
        return stored

    async def take_over(self, check: Callable[[StoredState], object]) -> int:
        """Begins an epoch at the first participant, which refuses other dispatchers' samples and commits from then on.

        Args:
            check: inspects the stored state before the epoch begins. If it raises, the present dispatcher of the table
                is not disturbed.

        Returns:
            The epoch.

        Raises:
            StaleEpoch: five times another dispatcher took the table over at the same moment.
            FailedPrecondition: `check` refuses the stored state, or a table exists with another specification.
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
        """Restores a checkpoint at every participant, and begins an epoch there.

        Raises:
            FailedPrecondition: another dispatcher has taken the table over, or a server cannot restore the checkpoint.
            StaleEpoch: a server is in a later epoch; the caller tries again with a higher number.
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
            The number of rows changed since the previous cut, over all tables and shards, and their size in bytes.
        """
        saved = await self._on_all(lambda each: each.save(checkpoint, epoch=epoch))
        self._note_stored([each.stored_rows for each in saved])
        return sum(each.rows for each in saved), sum(each.bytes for each in saved)

    async def commit(self, checkpoint: int, epoch: int, manifest: bytes, keep: int, *, finished: bool = False) -> None:
        """Makes a checkpoint valid at the first participant, then at the others; the last `keep` checkpoints stay.

        The first participant decides: a checkpoint that is valid there counts, even if the call fails before the other
        participants have it. With `finished` the job has ended, and its tables accept no more writes.
        """

        async def commit(participant: CheckpointClient, manifest: bytes) -> None:
            await self._repeated(
                lambda: participant.commit(checkpoint, manifest, keep, epoch=epoch, finished=finished),
            )

        await commit(self._first, manifest)
        await asyncio.gather(*(commit(other, b"") for other in self._participants[1:]))

    async def append_samples(self, entry: LogEntry, epoch: int) -> None:
        """Adds an entry to the sample log at the first participant.

        Args:
            entry: the samples, or the end of the stream.
            epoch: the present epoch.

        Raises:
            StaleEpoch: the server is not in this epoch: it has restarted and lost its rows, the next epoch begins, or
                another dispatcher has taken the job over.
            StorageUnwritable: its disk has been full or read-only for too long.
            Unavailable: the server is away for too long.
        """
        await self.with_room(lambda: self._repeated(lambda: self._first.append_samples(entry, epoch=epoch)))

    async def read_samples(self, epoch: int) -> list[LogEntry]:
        """Reads the sample log from the first participant."""
        return await self._repeated(lambda: self._first.read_samples(epoch=epoch))

    async def trim_samples(self, position: int | None, epoch: int) -> None:
        """Drops the entries before a position from the sample log; None drops all entries."""
        await self._repeated(lambda: self._first.trim_samples(position, epoch=epoch))

    async def with_room(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeats a call while a store is full or read-only, for at most `storage_seconds`."""
        logged = False

        async def attempt() -> T:
            nonlocal logged
            try:
                return await call()
            except StorageUnwritable as error:
                if not logged:
                    _log.warning("the job waits up to %g s for room: %s", self._storage_patience, error)
                logged = True
                raise

        return await repeated(attempt, self._storage_patience, on=StorageUnwritable)

    @property
    def _patience(self) -> float:
        """Seconds for which a server may be away: it loads its rows of all tables before it answers again."""
        servers = range(len(self._connections))
        most = max(sum(self._stored_bytes[server :: len(servers)]) for server in servers)
        return self._recovery_seconds + loading_seconds(most)

    def _note_stored(self, rows: Sequence[int]) -> None:
        """Notes the bytes of the rows of every participant, from their number."""
        self._stored_bytes = [number * size for number, size in zip(rows, self._row_bytes, strict=True)]

    async def _on_all(self, call: Callable[[CheckpointClient], Awaitable[T]]) -> list[T]:
        return await asyncio.gather(*(self._repeated(partial(call, each)) for each in self._participants))

    async def _repeated(self, call: Callable[[], Awaitable[T]]) -> T:
        return await repeated(call, self._patience, on=AWAY)
