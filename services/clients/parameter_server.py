"""The client of one parameter server, for programs that run in an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from esd.protos import ps_pb2, ps_pb2_grpc
from esd.services.clients.exchange import Exchange
from esd.services.clients.frames import Frame
from esd.services.clients.traffic import Traffic
from esd.services.domain.batches import LogEntry
from esd.services.domain.claimants import new_claimant
from esd.services.domain.errors import EsdError, Internal, Unavailable
from esd.services.domain.frames import Parcel, Pulls
from esd.services.domain.rows import Push, RowBlock
from esd.services.domain.tables import TableSpec
from esd.services.domain.worker_set import WorkerSet
from esd.services.runtime.answers import ReadableAnswers
from esd.services.runtime.channel import channel
from esd.services.runtime.security import PLAINTEXT, Credentials
from esd.services.runtime.settings import DEFAULT_MAX_MESSAGE_BYTES
from esd.services.runtime.status import Requests, domain_errors
from esd.services.wire.batches import decode_log_entry, encode_log_entry
from esd.services.wire.frames import Arrivals, encode_parcel
from esd.services.wire.rows import (
    decode_rows,
    decode_values,
    dense_chunks,
    encode_forget,
    encode_lookup,
    part_chunks,
    payload_bytes,
)
from esd.services.wire.tables import encode_table

_EXCHANGE = "/esd.v1.ParameterServer/Exchange"
_SAVE_SECONDS = 3600.0  # a server may write gigabytes to a disk


@dataclass(frozen=True, slots=True)
class StoredState:
    """What one server, or all servers of a job together, hold of a table.

    Attributes:
        epoch: the latest.
        manifest: of the committed checkpoint; empty if there is none, or if another server holds it.
        checkpoint: the committed checkpoint, named by the iteration that follows it; 0: there is none.
        checkpoint_rows: how many rows were stored then.
        checkpoint_trainings: how often they had been trained in their present lives, summed over rows.
        rows: how many are stored.
        durable: whether checkpoints and logged samples outlive the server that holds them.
        finished: whether the job that trains it has ended. Nothing is written then, until a way back is taken.
    """

    epoch: int
    manifest: bytes
    rows: int
    durable: bool
    checkpoint: int = 0
    checkpoint_rows: int = 0
    checkpoint_trainings: int = 0
    finished: bool = False


@dataclass(frozen=True, slots=True)
class PushAnswer:
    """What has become of a push.

    Attributes:
        stored: rows and gradients that were new to the server.
        already_known: repeated ones, which the server has ignored.
        bytes_sent: that it took.
    """

    stored: int
    already_known: int
    bytes_sent: int


class _Chunk(Protocol):
    @property
    def data(self) -> bytes: ...


C = TypeVar("C", bound=_Chunk)


class AsyncParameterServerClient:
    """Calls one shard of a table's parameter servers from an event loop.

        async with AsyncParameterServerClient("127.0.0.1:50051", table) as server:
            await server.create_table()

    Every call may be repeated, whatever became of the first attempt; `services/runtime/retry.py` `repeated` does it for
    as long as a server is away. All methods raise the errors of `esd.errors`: Unavailable when the server or its
    store cannot be reached, NotFound when there is no such table, DeadlineExceeded when the answer is late, StaleEpoch
    when `epoch` is not the table's. A client belongs to the event loop in which it was made, and is one dispatcher to
    the server where it begins epochs: nobody else gets them.

    Args:
        address: `host:port`.
        table: the table that all calls are about.
        timeout: seconds that a call may take, beside the time in which `traffic` moves its bytes.
        traffic: what messages with rows, dense parameters and parts pass on their way.
        max_message_bytes: longest message sent or taken; give the server the same.
        credentials: for a server that uses TLS or asks for a token.
        caller: a name for the server's log.
        patience: for how many seconds pulls and pushes are repeated that fail with an error of this class; None: never.
        listed: as which shard the job lists the server, from 0, and how many it lists. None: it is not compared.
    """

    def __init__(
        self,
        address: str,
        table: TableSpec,
        *,
        timeout: float = 60.0,
        traffic: Traffic | None = None,
        max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
        credentials: Credentials = PLAINTEXT,
        caller: str = "",
        patience: Mapping[type[EsdError], float] | None = None,
        listed: tuple[int, int] | None = None,
    ) -> None:
        self._table = table
        self._listed = listed or (0, 0)
        self._claimant = new_claimant()
        self._timeout = timeout
        self._traffic = traffic or Traffic()
        self._channel = channel(address, max_message_bytes, credentials=credentials, caller=caller)
        self._stub: Any = ps_pb2_grpc.ParameterServerStub(ReadableAnswers(self._channel))  # type: ignore[no-untyped-call]
        stream: Any = self._channel.stream_stream(_EXCHANGE, None, None)  # messages are bytes
        name = f"the parameter server at {address}"
        self._exchange = Exchange(stream, self._traffic, timeout, patience or {Unavailable: 0.0}, name)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    def of_table(self, table: TableSpec) -> Self:
        """Returns a client for another table of this server, over the channel and the stream of this one.

        Whoever closes one of them closes the others, too.
        """
        client = copy(self)
        client._table = table  # noqa: SLF001 - a client, too
        return client

    async def close(self) -> None:
        """Closes the stream and the channel."""
        await self._exchange.close()
        await self._channel.close(None)

    async def create_table(self, *, to_train: bool = False, claimant: bytes = b"") -> bool:
        """Makes sure that the table is there, and returns whether this call has created it.

        `claimant` claims it for a job that begins no epochs. Empty, it claims nothing.

        Raises:
            FailedPrecondition: it is there with another specification; it is to be trained, and its job has ended; it
                is to be claimed, and another job's; the server is another shard than it is listed as.
        """
        shard, shards = self._listed
        request = ps_pb2.CreateTableRequest(
            table=encode_table(self._table), to_train=to_train, shard=shard, shards=shards, claimant=claimant
        )
        with domain_errors():
            return bool((await self._stub.CreateTable(request, timeout=self._timeout)).created)

    async def describe(self) -> ps_pb2.DescribeServerResponse:
        """Returns the state of the server and all its tables, as the contract has it."""
        with domain_errors():
            described: ps_pb2.DescribeServerResponse = await self._stub.DescribeServer(
                ps_pb2.DescribeServerRequest(), timeout=self._timeout
            )
            return described

    # --- rows

    async def pull(
        self,
        ids: NDArray[np.uint64],
        versions: NDArray[np.int64],
        rows: NDArray[np.float32],
        positions: NDArray[np.int64],
        *,
        epoch: int = 0,
    ) -> int:
        """Puts the rows with these ids, at exactly these versions, into `rows[positions]`.

        Args:
            ids: uint64 [r], distinct.
            versions: int64 [r].
            rows: float32 [.., W], written to.
            positions: int64 [r], the row of `rows` for each id.
            epoch: of the plan that asks.

        Returns:
            The bytes moved: what asks for the rows, and the rows.

        Raises:
            StaleVersion: a row is already newer.
            DeadlineExceeded: a version did not appear in time.
        """
        frames = await self.carry(Parcel.of(pulls=Pulls(ids, versions, positions)), rows, epoch=epoch)
        return sum(frame.pull_bytes for frame in frames)

    async def push(self, push: Push, *, epoch: int = 0) -> PushAnswer:
        """Stores rows and gradients durably.

        Raises:
            FailedPrecondition: a gradient skips a version, or contributors disagree.
        """
        frames = await self.carry(Parcel.of(push), epoch=epoch)
        stored = [frame.stored.result() for frame in frames]
        return PushAnswer(
            sum(each.new for each in stored),
            sum(each.already_known for each in stored),
            sum(frame.push_bytes for frame in frames),
        )

    def exchange(
        self, parcel: Parcel, rows: NDArray[np.float32] | None = None, *, epoch: int = 0, urgent: bool = False
    ) -> list[Frame]:
        """Sends a parcel as soon as it may be sent, and returns at once: what it carries has been read.

        Args:
            parcel: for this server.
            rows: float32 [.., W], where the pulled rows go.
            epoch: of the plan.
            urgent: it goes before what is not, and was not sent yet.

        Returns:
            The frames that carry it, whose futures tell what becomes of it.
        """
        frames = []
        for piece in parcel.pieces(self._table, self._traffic.chunk_bytes):
            frame = self._frame(piece, rows, epoch)
            self._exchange.submit(frame, urgent=urgent)
            frames.append(frame)
        return frames

    async def carry(self, parcel: Parcel, rows: NDArray[np.float32] | None = None, *, epoch: int = 0) -> list[Frame]:
        """Exchanges a parcel of any size, of which only what is under way takes memory.

        Args:
            parcel: for this server.
            rows: float32 [.., W], where the pulled rows go.
            epoch: of the plan.

        Returns:
            The frames that have carried it, all answered.
        """
        frames: list[Frame] = []
        try:
            for piece in parcel.pieces(self._table, self._traffic.chunk_bytes):
                frame = self._frame(piece, rows, epoch)
                self._exchange.submit(frame)
                frames.append(frame)
                await self._exchange.room()
            await asyncio.gather(*(future for frame in frames for future in (frame.stored, frame.pulled)))
        finally:
            for frame in frames:
                frame.give_up()
        return frames

    def _frame(self, parcel: Parcel, rows: NDArray[np.float32] | None, epoch: int) -> Frame:
        message = encode_parcel(parcel, self._table, self._exchange.number(), epoch=epoch, wait_seconds=self._timeout)
        arrivals = Arrivals(parcel.pulls, rows, self._table) if len(parcel.pulls) and rows is not None else None
        return Frame(message, arrivals)

    async def look_up(
        self, ids: NDArray[np.uint64], *, checkpoint: int = 0
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Returns the values of rows, whoever trains them meanwhile; initial ones where they were not trained.

        Args:
            ids: uint64 [r].
            checkpoint: the values are those of this one, which must be kept; 0: the latest.

        Returns:
            Versions, int64 [r], 0 for rows that were not trained; and values, float32 [r, D].
        """
        versions = np.empty(len(ids), np.int64)
        values = np.empty((len(ids), self._table.dimension), np.float32)
        done = 0
        with domain_errors():
            timeout = self._traffic.deadline(payload_bytes(self._table, len(ids)), self._timeout)
            async for chunk in self._stub.Lookup(encode_lookup(self._table.name, ids, checkpoint), timeout=timeout):
                part_versions, part_values = decode_values(chunk, self._table)
                part = slice(done, done + len(part_versions))
                versions[part], values[part] = part_versions, part_values
                done = part.stop
        if done != len(ids):
            raise Internal(f"a look-up of {len(ids)} rows ended after {done}")
        return versions, values

    async def forget(self, ids: NDArray[np.uint64], below: int, *, epoch: int = 0) -> int:
        """Takes the rows whose version is below `below` out of the table, and returns how many were stored.

        Args:
            ids: uint64 [r], distinct.
            below: the version with which later lives begin (services/domain/versions.py).
            epoch: of the plan that asks.
        """
        request = encode_forget(self._table.name, ids, below, epoch=epoch)
        await self._traffic.send(request.ByteSize())
        with domain_errors():
            timeout = self._traffic.deadline(request.ByteSize(), self._timeout)
            return int((await self._stub.Forget(request, timeout=timeout)).rows)

    async def scan(self) -> AsyncIterator[RowBlock]:
        """Yields every stored row with its optimizer state, in unspecified order."""
        with domain_errors():
            async for chunk in self._stub.Scan(ps_pb2.ScanRequest(table=self._table.name), timeout=self._timeout):
                yield decode_rows(chunk.rows, self._table)

    async def put_dense(self, data: bytes, *, epoch: int = 0) -> int:
        """Stores the dense parameters of the table's model, a whole .npz file; returns the bytes stored."""
        chunks = dense_chunks(self._table.name, data, self._traffic.chunk_bytes, epoch=epoch)
        return await self._upload(self._stub.PutDense, chunks, len(data))

    async def get_dense(self, *, checkpoint: int = 0) -> bytes:
        """Reads the dense parameters stored last, or the part `dense` of a checkpoint; see DenseParameters.

        Raises:
            NotFound: there are none, or there is no such checkpoint.
        """
        request = ps_pb2.GetDenseRequest(table=self._table.name, checkpoint=checkpoint)
        return await self._download(self._stub.GetDense(request, timeout=self._timeout))

    # --- epochs and checkpoints

    async def cut(
        self, checkpoint: int, worker: int, contributors: WorkerSet, *, epoch: int, last: bool = False
    ) -> None:
        """Tells that the worker in slot `worker` has pushed everything of the iterations before the checkpoint.

        Args:
            checkpoint: the iteration that follows the cut, > 0.
            worker: slot of the sender.
            contributors: the workers that take part in the cut.
            epoch: in which the worker trains.
            last: whether the job ends here and takes no checkpoint. The table is finished when all contributors have
                told so.
        """
        request = ps_pb2.CutRequest(
            table=self._table.name,
            epoch=epoch,
            checkpoint=checkpoint,
            worker=worker,
            contributors=contributors.mask,
            last=last,
        )
        with domain_errors():
            await self._stub.Cut(request, timeout=self._timeout)

    async def put_part(self, checkpoint: int, name: str, data: bytes, *, epoch: int) -> int:
        """Stores a named part of a checkpoint that is made in an epoch; returns the bytes stored."""
        chunks = part_chunks(self._table.name, checkpoint, name, data, self._traffic.chunk_bytes, epoch=epoch)
        return await self._upload(self._stub.PutPart, chunks, len(data))

    async def get_part(self, checkpoint: int, name: str, *, within: float | None = None) -> bytes:
        """Reads a part of a checkpoint, for which only `within` sets a deadline, in seconds.

        Raises:
            NotFound: there is no such part.
        """
        request = ps_pb2.GetPartRequest(table=self._table.name, checkpoint=checkpoint, name=name)
        return await self._download(self._stub.GetPart(request, timeout=within))

    async def save(self, checkpoint: int, *, epoch: int) -> tuple[int, int]:
        """Makes the server's share of a complete cut as durable as its store can.

        Returns:
            How many rows have changed since the cut before, and the bytes that they take.

        Raises:
            FailedPrecondition: the cut is not complete.
        """
        request = ps_pb2.SaveRequest(table=self._table.name, epoch=epoch, checkpoint=checkpoint)
        with domain_errors():
            saved = await self._stub.Save(request, timeout=_SAVE_SECONDS)
        return saved.rows, saved.bytes

    async def commit(self, checkpoint: int, manifest: bytes, keep: int, *, epoch: int, finished: bool = False) -> None:
        """Makes a checkpoint valid; the last `keep` valid ones stay. Only the first shard gets the manifest.

        With `finished` the job has ended, and so nothing is written to the table any more.
        """
        request = ps_pb2.CommitRequest(
            table=self._table.name, epoch=epoch, checkpoint=checkpoint, manifest=manifest, keep=keep, finished=finished
        )
        with domain_errors():
            await self._stub.Commit(request, timeout=self._timeout)

    async def begin_epoch(self, epoch: int, *, takes_over: bool) -> None:
        """Begins an epoch of this client, with the rows as they are.

        Args:
            epoch: above the table's, or this client's own.
            takes_over: whether the table may be another's, who has begun an epoch.

        Raises:
            FailedPrecondition: the table is another's.
            StaleEpoch: a later epoch has begun, or somebody else has begun this one.
        """
        request = ps_pb2.BeginEpochRequest(
            table=self._table.name, epoch=epoch, claimant=self._claimant, takes_over=takes_over
        )
        with domain_errors():
            await self._stub.BeginEpoch(request, timeout=self._timeout)

    async def restore(self, checkpoint: int, *, epoch: int, within: float | None = None) -> int:
        """Puts the table back to a committed checkpoint, 0 for an empty table, and begins an epoch there.

        Args:
            checkpoint: where to go back to.
            epoch: that begins, above the table's, or this client's own.
            within: seconds that it may take, in place of the client's timeout.

        Returns:
            How many rows were put back; 0 if a call that seemed lost has done it.

        Raises:
            FailedPrecondition: the server cannot go back there, or the epoch has begun at another checkpoint.
            StaleEpoch: a later epoch has begun, or somebody else has begun this one.
        """
        request = ps_pb2.RestoreRequest(
            table=encode_table(self._table), checkpoint=checkpoint, epoch=epoch, claimant=self._claimant
        )
        with domain_errors():
            return int((await self._stub.Restore(request, timeout=within or self._timeout)).rows)

    async def get_checkpoint(self) -> StoredState:
        """Returns what this server holds of the table."""
        request = ps_pb2.GetCheckpointRequest(table=self._table.name)
        with domain_errors():
            found = await self._stub.GetCheckpoint(request, timeout=self._timeout)
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

    # --- the log of the sample stream

    async def append_samples(self, entry: LogEntry, *, epoch: int) -> None:
        """Adds an entry to the sample log. Raises FailedPrecondition when the log ends elsewhere."""
        request = ps_pb2.AppendSamplesRequest(table=self._table.name, epoch=epoch, entry=encode_log_entry(entry))
        with domain_errors():
            await self._stub.AppendSamples(request, timeout=self._timeout)

    async def read_samples(self, *, epoch: int) -> list[LogEntry]:
        """Reads the sample log."""
        request = ps_pb2.ReadSamplesRequest(table=self._table.name, epoch=epoch)
        with domain_errors():
            responses = self._stub.ReadSamples(request, timeout=self._timeout)
            return [decode_log_entry(response.entry) async for response in responses]

    async def trim_samples(self, position: int | None, *, epoch: int) -> None:
        """Drops what lies before a position of the sample log; None: everything."""
        request = ps_pb2.TrimSamplesRequest(
            table=self._table.name, epoch=epoch, position=position, all=position is None
        )
        with domain_errors():
            await self._stub.TrimSamples(request, timeout=self._timeout)

    async def _upload(self, rpc: Any, chunks: Iterable[C], size: int) -> int:
        async def paced() -> AsyncIterator[C]:
            for chunk in chunks:
                await self._traffic.send(len(chunk.data))
                yield chunk

        requests = Requests(paced())
        with domain_errors(requests):
            return int((await rpc(requests, timeout=self._traffic.deadline(size, self._timeout))).bytes)

    async def _download(self, chunks: Any) -> bytes:
        data = bytearray()
        with domain_errors():
            async for chunk in chunks:
                piece = chunk.data
                await self._traffic.receive(len(piece))
                data += piece
        return bytes(data)
