"""The client of one parameter server, for programs that run in an event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from protos import ps_pb2, ps_pb2_grpc
from services.domain.batches import LogEntry
from services.domain.errors import Internal
from services.domain.rows import Push, RowBlock
from services.domain.tables import TableSpec
from services.domain.worker_set import WorkerSet
from services.runtime.channel import channel
from services.runtime.security import PLAINTEXT, Credentials
from services.runtime.settings import DEFAULT_MAX_MESSAGE_BYTES
from services.runtime.status import Requests, domain_errors
from services.wire.batches import decode_log_entry, encode_log_entry
from services.wire.rows import (
    CHUNK_BYTES,
    decode_rows,
    decode_values,
    dense_chunks,
    encode_forget,
    encode_lookup,
    encode_pull,
    part_chunks,
    payload_bytes,
    push_chunks,
)
from services.wire.tables import encode_table

_SAVE_SECONDS = 3600.0  # a server may write gigabytes to a disk


class Traffic:
    """What a client's messages pass on their way to a server and back; this one lets them pass at once.

    A worker holds its traffic to the speed of its link and measures its pushes: its link is another `Traffic`.

    Attributes:
        chunk_bytes: payload to put into one message.
    """

    chunk_bytes: int = CHUNK_BYTES

    async def send(self, size: int) -> None:
        """Returns when a message of `size` bytes may be sent."""

    async def receive(self, size: int) -> None:
        """Returns when a message of `size` bytes may have arrived."""

    def pushing(self) -> AbstractContextManager[None]:
        """A push is under way inside the block; blocks may overlap."""
        return nullcontext()

    def pushed(self, size: int) -> None:
        """Counts a message of `size` bytes of a push that is under way."""

    def deadline(self, size: int, timeout: float) -> float:  # noqa: ARG002 - bytes take no time here
        """Tells the seconds to allow for a call that moves `size` bytes and may wait for `timeout` seconds besides."""
        return timeout


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
        bytes_sent: by this attempt.
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

    Every call may be repeated, whatever became of the first attempt; `services.runtime.retry.repeated` does it for as
    long as a server is away. All methods raise the errors of services.domain.errors: Unavailable when the server or its
    store cannot be reached, NotFound when there is no such table, DeadlineExceeded when the answer is late, StaleEpoch
    when `epoch` is not the table's. A client belongs to the event loop in which it was made.

    Args:
        address: `host:port`.
        table: the table that all calls are about.
        timeout: seconds that a call may take, beside the time in which `traffic` moves its bytes.
        traffic: what messages with rows, dense parameters and parts pass on their way.
        max_message_bytes: longest message sent or taken; give the server the same.
        credentials: for a server that uses TLS or asks for a token.
        caller: a name for the server's log.
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
    ) -> None:
        self._table = table
        self._timeout = timeout
        self._traffic = traffic or Traffic()
        self._channel = channel(address, max_message_bytes, credentials=credentials, caller=caller)
        self._stub: Any = ps_pb2_grpc.ParameterServerStub(self._channel)  # type: ignore[no-untyped-call]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the channel."""
        await self._channel.close(None)

    async def create_table(self, *, to_train: bool = False) -> bool:
        """Makes sure that the table is there, and returns whether this call has created it.

        Raises:
            FailedPrecondition: it is there with another specification; it is to be trained, and its job has ended.
        """
        request = ps_pb2.CreateTableRequest(table=encode_table(self._table), to_train=to_train)
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
            The bytes received.

        Raises:
            StaleVersion: a row is already newer.
            DeadlineExceeded: a version did not appear in time.
        """
        request = encode_pull(self._table.name, ids, versions, epoch=epoch)
        await self._traffic.send(request.ByteSize())
        received = done = 0
        with domain_errors():
            async for chunk in self._stub.Pull(request, timeout=self._moving(len(ids))):
                received += chunk.ByteSize()
                await self._traffic.receive(chunk.ByteSize())
                block = decode_rows(chunk.rows, self._table)
                part = slice(done, done + len(block))
                if not (np.array_equal(block.ids, ids[part]) and np.array_equal(block.versions, versions[part])):
                    raise Internal(f"rows {done} to {part.stop} of a pull are not those that were asked for")
                rows[positions[part]] = block.rows
                done = part.stop
        if done != len(ids):
            raise Internal(f"a pull of {len(ids)} rows ended after {done}")
        return received

    async def push(self, push: Push, *, epoch: int = 0) -> PushAnswer:
        """Stores rows and gradients durably.

        Raises:
            FailedPrecondition: a gradient skips a version, or contributors disagree.
        """
        sent = 0

        async def chunks() -> AsyncIterator[ps_pb2.PushRequest]:
            nonlocal sent
            for chunk in push_chunks(push, self._table, epoch=epoch, chunk_bytes=self._traffic.chunk_bytes):
                size = chunk.ByteSize()
                await self._traffic.send(size)
                self._traffic.pushed(size)
                sent += size
                yield chunk

        requests = Requests(chunks())
        with self._traffic.pushing(), domain_errors(requests):
            answer = await self._stub.Push(requests, timeout=self._moving(len(push)))
        return PushAnswer(answer.stored, answer.already_known, sent)

    async def look_up(self, ids: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Returns the latest values of rows, whoever trains them meanwhile; initial ones where they were not trained.

        Args:
            ids: uint64 [r].

        Returns:
            Versions, int64 [r], 0 for rows that were not trained; and values, float32 [r, D].
        """
        versions = np.empty(len(ids), np.int64)
        values = np.empty((len(ids), self._table.dimension), np.float32)
        done = 0
        with domain_errors():
            async for chunk in self._stub.Lookup(encode_lookup(self._table.name, ids), timeout=self._moving(len(ids))):
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

    async def put_dense(self, data: bytes) -> int:
        """Stores the dense parameters of the table's model, a whole .npz file; returns the bytes stored."""
        chunks = dense_chunks(self._table.name, data, self._traffic.chunk_bytes)
        return await self._upload(self._stub.PutDense, chunks, len(data))

    async def get_dense(self) -> bytes:
        """Reads the dense parameters stored last. Raises NotFound when there are none."""
        request = ps_pb2.GetDenseRequest(table=self._table.name)
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

    async def put_part(self, checkpoint: int, name: str, data: bytes) -> int:
        """Stores a named part of a checkpoint; returns the bytes stored."""
        chunks = part_chunks(self._table.name, checkpoint, name, data, self._traffic.chunk_bytes)
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
            table=self._table.name,
            epoch=epoch,
            checkpoint=checkpoint,
            manifest=manifest,
            keep=keep,
            finished=finished,
        )
        with domain_errors():
            await self._stub.Commit(request, timeout=self._timeout)

    async def restore(self, checkpoint: int, *, epoch: int, within: float | None = None) -> int:
        """Puts the table back to a committed checkpoint, 0 for an empty table, and begins an epoch there.

        Args:
            checkpoint: where to go back to.
            epoch: that begins, above the table's.
            within: seconds that it may take, in place of the client's timeout.

        Returns:
            How many rows were put back.

        Raises:
            FailedPrecondition: the server cannot go back there.
        """
        request = ps_pb2.RestoreRequest(table=encode_table(self._table), checkpoint=checkpoint, epoch=epoch)
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
        """Begins an epoch, so that nobody of an earlier one appends any more, and reads the sample log."""
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

    def _moving(self, rows: int) -> float:
        """Returns the deadline of a call that moves `rows` rows or gradients."""
        return self._traffic.deadline(payload_bytes(self._table, rows), self._timeout)

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
