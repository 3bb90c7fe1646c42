"""One parameter server, as the workers use it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import numpy as np
from numpy.typing import NDArray

from protos import ps_pb2, ps_pb2_grpc
from services.domain.errors import Internal
from services.domain.rows import Push
from services.domain.tables import TableSpec
from services.runtime.channel import channel
from services.runtime.security import Credentials
from services.runtime.status import domain_errors
from services.wire.arrays import decode_array, encode_array
from services.wire.tables import encode_table
from worker.service.link import Link

_BYTES_BESIDE_A_ROW = 32  # id, version, contributors, step


class Shard:
    """Calls to one parameter server, shaped by the link. Each may be repeated."""

    def __init__(
        self,
        address: str,
        table: TableSpec,
        worker: int,
        link: Link,
        *,
        epoch: int,
        max_message_bytes: int,
        patience: float,
        credentials: Credentials,
        caller: str,
    ) -> None:
        """Opens a channel, which `close` closes.

        Args:
            address: `host:port`.
            table: the job's.
            worker: slot of this worker.
            link: what all traffic shares.
            epoch: in all requests; the server refuses those of an epoch that is over.
            max_message_bytes: of one gRPC message.
            patience: seconds a call may wait for other workers' pushes or for the store.
            credentials: of this worker.
            caller: its name, for the server's log.
        """
        self._table = table
        self._worker = worker
        self._epoch = epoch
        self._link = link
        self._patience = patience
        self._channel = channel(address, max_message_bytes, credentials=credentials, caller=caller)
        self._stub = ps_pb2_grpc.ParameterServerStub(self._channel)  # type: ignore[no-untyped-call]

    async def close(self) -> None:
        """Closes the channel."""
        await self._channel.close(None)

    async def create_table(self) -> None:
        """Makes sure that the table is there. FailedPrecondition: it is there with another specification."""
        with domain_errors():
            await self._stub.CreateTable(
                ps_pb2.CreateTableRequest(table=encode_table(self._table)), timeout=self._patience
            )

    async def pull(
        self,
        ids: NDArray[np.uint64],
        versions: NDArray[np.int64],
        rows: NDArray[np.float32],
        places: NDArray[np.int64],
    ) -> int:
        """Puts the rows with these ids, at exactly these versions, into rows[places]; returns the bytes received.

        Raises:
            StaleVersion: a row is already newer.
            DeadlineExceeded: a version did not appear in time.
        """
        request = ps_pb2.PullRequest(
            table=self._table.name,
            ids=encode_array(ids, np.uint64, "ids"),
            versions=encode_array(versions, np.int64, "versions"),
            epoch=self._epoch,
        )
        await self._link.send(request.ByteSize())
        received = done = 0
        with domain_errors():
            async for chunk in self._stub.Pull(request, timeout=self._deadline(len(ids))):
                received += chunk.ByteSize()
                await self._link.receive(chunk.ByteSize())
                count = len(chunk.ids) // ids.itemsize
                part = slice(done, done + count)
                if chunk.ids != ids[part].tobytes() or chunk.versions != versions[part].tobytes():
                    raise Internal(f"rows {done} to {done + count} of a pull are not those that were asked for")
                rows[places[part]] = decode_array(chunk.rows, np.float32, (count, self._table.row_width), "rows")
                done += count
        if done != len(ids):
            raise Internal(f"a pull of {len(ids)} rows ended after {done}")
        return received

    async def push(self, push: Push) -> int:
        """Stores rows and gradients durably; returns the bytes sent.

        Raises:
            FailedPrecondition: a gradient skips a version, or contributors disagree.
        """
        sent = 0

        async def chunks() -> AsyncIterator[ps_pb2.PushChunk]:
            nonlocal sent
            for piece in push.pieces(max(1, self._link.chunk_bytes // self._moved_bytes(1))):
                chunk = self._chunk(piece)
                await self._link.send(chunk.ByteSize())
                self._link.uplink.count(chunk.ByteSize())
                sent += chunk.ByteSize()
                yield chunk

        with self._link.uplink.transfer(), domain_errors():
            await self._stub.Push(chunks(), timeout=self._deadline(len(push)))
        return sent

    async def forget(self, ids: NDArray[np.uint64], below: int) -> None:
        """Takes the rows out of the table whose version is below."""
        request = ps_pb2.ForgetRequest(
            table=self._table.name, epoch=self._epoch, ids=encode_array(ids, np.uint64, "ids"), below=below
        )
        await self._link.send(request.ByteSize())
        with domain_errors():
            await self._stub.Forget(request, timeout=self._link.deadline(request.ByteSize(), self._patience))

    async def put_dense(self, data: bytes) -> None:
        """Stores the dense parameters, a whole .npz file."""
        size = self._link.chunk_bytes

        async def chunks() -> AsyncIterator[ps_pb2.DenseChunk]:
            for begin in range(0, len(data), size):
                piece = data[begin : begin + size]
                await self._link.send(len(piece))
                yield ps_pb2.DenseChunk(table=self._table.name, data=piece, last=begin + size >= len(data))

        with domain_errors():
            await self._stub.PutDense(chunks(), timeout=self._link.deadline(len(data), self._patience))

    async def cut(self, checkpoint: int, contributors: int) -> None:
        """Tells that this worker has pushed everything of the iterations before the cut."""
        request = ps_pb2.CutRequest(
            table=self._table.name,
            epoch=self._epoch,
            checkpoint=checkpoint,
            worker=self._worker,
            contributors=contributors,
        )
        with domain_errors():
            await self._stub.Cut(request, timeout=self._patience)

    async def put_part(self, checkpoint: int, name: str, data: bytes) -> None:
        """Stores a part of a checkpoint."""
        size = self._link.chunk_bytes

        async def chunks() -> AsyncIterator[ps_pb2.PartChunk]:
            for begin in range(0, len(data), size):
                piece = data[begin : begin + size]
                await self._link.send(len(piece))
                last = begin + size >= len(data)
                yield ps_pb2.PartChunk(table=self._table.name, checkpoint=checkpoint, name=name, data=piece, last=last)

        with domain_errors():
            await self._stub.PutPart(chunks(), timeout=self._link.deadline(len(data), self._patience))

    async def get_part(self, checkpoint: int, name: str) -> bytes:
        """Reads a part of a checkpoint. NotFound: there is no such part."""
        request = ps_pb2.GetPartRequest(table=self._table.name, checkpoint=checkpoint, name=name)
        data = bytearray()
        with domain_errors():
            async for chunk in self._stub.GetPart(request):
                await self._link.receive(len(chunk.data))
                data += chunk.data
        return bytes(data)

    def _deadline(self, rows: int) -> float:
        return self._link.deadline(self._moved_bytes(rows), self._patience)

    def _moved_bytes(self, rows: int) -> int:
        return rows * (self._table.row_bytes + _BYTES_BESIDE_A_ROW)

    def _chunk(self, push: Push) -> ps_pb2.PushChunk:
        chunk = ps_pb2.PushChunk(table=self._table.name, epoch=self._epoch)
        rows, gradients = push.rows, push.gradients
        if len(rows):
            chunk.rows.ids = encode_array(rows.ids, np.uint64, "ids")
            chunk.rows.versions = encode_array(rows.versions, np.int64, "versions")
            chunk.rows.rows = encode_array(rows.rows, np.float32, "rows")
        if len(gradients):
            chunk.gradients.ids = encode_array(gradients.ids, np.uint64, "ids")
            chunk.gradients.target_versions = encode_array(gradients.targets, np.int64, "target_versions")
            chunk.gradients.contributors = encode_array(gradients.contributors, np.uint64, "contributors")
            chunk.gradients.steps = encode_array(gradients.steps, np.int64, "steps")
            chunk.gradients.gradients = encode_array(gradients.gradients, np.float32, "gradients")
            chunk.gradients.worker = gradients.worker
        return chunk
