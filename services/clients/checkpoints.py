"""The client of a table's epochs, checkpoints and sample log at one parameter server."""

from __future__ import annotations

import io
import itertools
from dataclasses import dataclass

from esd.protos import ps_pb2
from esd.services.clients.parameter_server import ParameterServerConnection
from esd.services.domain.batches import LogEntry
from esd.services.domain.parts import is_last, named_pieces, piece_name
from esd.services.domain.tables import TableSpec
from esd.services.domain.worker_set import WorkerSet
from esd.services.runtime.deadline import each_within
from esd.services.runtime.status import domain_errors
from esd.services.wire.batches import decode_log_entry, encode_log_entry
from esd.services.wire.rows import dense_chunks, part_chunks
from esd.services.wire.tables import encode_table

_SAVE_SECONDS = 3600.0  # a server may write gigabytes to a disk


@dataclass(frozen=True, slots=True)
class SavedCut:
    """A server's share of a cut that is as durable as its store can make it.

    Attributes:
        rows: number of rows that have changed since the previous cut.
        bytes: of these rows.
        stored_rows: number of rows that the table holds at the server.
    """

    rows: int
    bytes: int
    stored_rows: int


@dataclass(frozen=True, slots=True)
class StoredState:
    """The state of a table at one server, or at all servers of a job together.

    Attributes:
        epoch: the latest epoch.
        manifest: of the committed checkpoint; empty if no checkpoint is committed, or if another server holds it.
        checkpoint: the committed checkpoint, named by the iteration that follows it; 0: none is committed.
        checkpoint_rows: number of rows stored then.
        checkpoint_trainings: number of their trainings in their present lives, summed over rows.
        rows: number of stored rows.
        durable: whether checkpoints and logged samples outlive the server that holds them.
        finished: whether the job that trains the table has ended. The table then accepts no write until it is restored.
    """

    epoch: int
    manifest: bytes
    rows: int
    durable: bool
    checkpoint: int = 0
    checkpoint_rows: int = 0
    checkpoint_trainings: int = 0
    finished: bool = False


class CheckpointClient:
    """Keeps the epochs, checkpoints and sample log of one table at one server.

    A participant of a checkpoint is a table at a server. The dispatcher begins epochs and takes checkpoints. A worker
    reports its cut to every participant, and stores the dense parameters.

    Args:
        server: the connection, which is one dispatcher to the server where it begins epochs.
        table: the table.

    Example:
        >>> table = esd.TableSpec("items", dimension=16, optimizer=esd.OptimizerSpec(), seed=0, init_scale=0.01)
        >>> async def read_state():
        ...     async with esd.ParameterServerConnection("127.0.0.1:50052") as server:
        ...         checkpoints = esd.CheckpointClient(server, table)
        ...         await checkpoints.create_table()
        ...         return await checkpoints.get_checkpoint()
        >>> state = asyncio.run(read_state())
        >>> state.checkpoint, state.finished
        (0, False)
    """

    def __init__(self, server: ParameterServerConnection, table: TableSpec) -> None:
        self._server = server
        self._table = table

    async def create_table(self) -> bool:
        """Creates the table unless it exists; see `ParameterServerConnection.create_table`."""
        return await self._server.create_table(self._table)

    async def cut(
        self, checkpoint: int, worker: int, contributors: WorkerSet, *, epoch: int, last: bool = False
    ) -> None:
        """Reports that the worker in slot `worker` has pushed everything of the iterations before the checkpoint.

        Args:
            checkpoint: the iteration that follows the cut, > 0.
            worker: slot of the sender.
            contributors: the workers that take part in the cut.
            epoch: in which the worker trains.
            last: whether the job ends here and takes no checkpoint. The table is finished when all contributors have
                reported this.
        """
        request = ps_pb2.CutRequest(
            table=self._table.name,
            epoch=epoch,
            checkpoint=checkpoint,
            worker=worker,
            contributors=contributors.words[0],
            more_contributors=contributors.words[1],
            last=last,
        )
        with domain_errors():
            await self._server.stub.Cut(request, timeout=self._server.timeout)

    async def put_part(self, checkpoint: int, name: str, data: bytes, *, epoch: int) -> int:
        """Stores a named part of a checkpoint that is made in `epoch`, of any size, and returns its bytes."""
        table, size = self._table.name, self._server.traffic.chunk_bytes
        stored = 0
        for piece, content in named_pieces(name, memoryview(data)):
            chunks = part_chunks(table, checkpoint, piece, content, size, epoch=epoch)
            stored += await self._server.upload(self._server.stub.PutPart, chunks, len(content))
        return stored

    async def get_part(self, checkpoint: int, name: str, *, within: float | None = None) -> bytes:
        """Reads a part of a checkpoint, where only `within` sets a deadline, in seconds for each 64 MiB.

        Raises:
            NotFound: the checkpoint has no such part, or lacks a piece of it.
        """
        whole = io.BytesIO()  # unlike a list of pieces, it takes the bytes of a long part only once
        for number in itertools.count():
            piece = piece_name(name, number)
            request = ps_pb2.GetPartRequest(table=self._table.name, checkpoint=checkpoint, name=piece)
            content = await self._server.download(self._server.stub.GetPart(request, timeout=within))
            whole.write(content)
            if is_last(content):
                break
        return whole.getvalue()

    async def save(self, checkpoint: int, *, epoch: int) -> SavedCut:
        """Makes the server's share of a complete cut as durable as its store can.

        Raises:
            FailedPrecondition: the cut is not complete.
        """
        request = ps_pb2.SaveRequest(table=self._table.name, epoch=epoch, checkpoint=checkpoint)
        with domain_errors():
            saved = await self._server.stub.Save(request, timeout=_SAVE_SECONDS)
        return SavedCut(saved.rows, saved.bytes, saved.stored_rows)

    async def commit(self, checkpoint: int, manifest: bytes, keep: int, *, epoch: int, finished: bool = False) -> None:
        """Makes a checkpoint valid; the last `keep` valid checkpoints stay. Only the first shard gets the manifest.

        With `finished` the job has ended, and the table accepts no more writes.
        """
        request = ps_pb2.CommitRequest(
            table=self._table.name, epoch=epoch, checkpoint=checkpoint, manifest=manifest, keep=keep, finished=finished
        )
        with domain_errors():
            await self._server.stub.Commit(request, timeout=self._server.timeout)

    async def begin_epoch(self, epoch: int, *, takes_over: bool) -> None:
        """Begins an epoch of this connection, with the rows as they are.

        Args:
            epoch: above the table's epoch, or the epoch that this connection has begun.
            takes_over: whether another dispatcher may have begun the table's epoch.

        Raises:
            FailedPrecondition: another dispatcher holds the table.
            StaleEpoch: a later epoch has begun, or another dispatcher has begun this one.
        """
        request = ps_pb2.BeginEpochRequest(
            table=self._table.name, epoch=epoch, claimant=self._server.claimant, takes_over=takes_over
        )
        with domain_errors():
            await self._server.stub.BeginEpoch(request, timeout=self._server.timeout)

    async def restore(self, checkpoint: int, *, epoch: int, within: float | None = None) -> int:
        """Restores the table to a committed checkpoint, 0 for an empty table, and begins an epoch there.

        Args:
            checkpoint: the checkpoint.
            epoch: the one that begins; above the table's epoch, or the epoch that this connection has begun.
            within: seconds that the call may take; None: the connection's timeout.

        Returns:
            The number of restored rows; 0 if an earlier attempt, whose answer was lost, has restored them.

        Raises:
            FailedPrecondition: the server cannot restore it, or the epoch has begun at another checkpoint.
            StaleEpoch: a later epoch has begun, or another dispatcher has begun this one.
        """
        request = ps_pb2.RestoreRequest(
            table=encode_table(self._table), checkpoint=checkpoint, epoch=epoch, claimant=self._server.claimant
        )
        with domain_errors():
            return int((await self._server.stub.Restore(request, timeout=within or self._server.timeout)).rows)

    async def get_checkpoint(self) -> StoredState:
        """Returns the state of the table at this server."""
        request = ps_pb2.GetCheckpointRequest(table=self._table.name)
        with domain_errors():
            found = await self._server.stub.GetCheckpoint(request, timeout=self._server.timeout)
        return StoredState(
            epoch=found.epoch,
            manifest=found.manifest,
            rows=found.rows,
            durable=found.durable,
            checkpoint=found.checkpoint,
            checkpoint_rows=found.checkpoint_rows,
            checkpoint_trainings=found.checkpoint_trainings,
            finished=found.finished,
        )

    async def append_samples(self, entry: LogEntry, *, epoch: int) -> None:
        """Adds an entry to the sample log. Raises FailedPrecondition when the log ends elsewhere."""
        request = ps_pb2.AppendSamplesRequest(table=self._table.name, epoch=epoch, entry=encode_log_entry(entry))
        with domain_errors():
            await self._server.stub.AppendSamples(request, timeout=self._server.timeout)

    async def read_samples(self, *, epoch: int) -> list[LogEntry]:
        """Reads the sample log; each entry has the connection's timeout."""
        request = ps_pb2.ReadSamplesRequest(table=self._table.name, epoch=epoch)
        with domain_errors():
            responses = each_within(self._server.stub.ReadSamples(request), self._server.timeout)
            return [decode_log_entry(response.entry) async for response in responses]

    async def trim_samples(self, position: int | None, *, epoch: int) -> None:
        """Drops the entries before a position from the sample log; None drops all entries."""
        request = ps_pb2.TrimSamplesRequest(
            table=self._table.name, epoch=epoch, position=position, all=position is None
        )
        with domain_errors():
            await self._server.stub.TrimSamples(request, timeout=self._server.timeout)

    async def put_dense(self, data: bytes, *, epoch: int = 0) -> int:
        """Stores the dense parameters of the table's model, a whole .npz file, and returns their bytes."""
        chunks = dense_chunks(self._table.name, data, self._server.traffic.chunk_bytes, epoch=epoch)
        return await self._server.upload(self._server.stub.PutDense, chunks, len(data))
