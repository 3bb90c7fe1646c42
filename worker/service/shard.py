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
from services.wire.rows import (
    decode_rows,
    dense_chunks,
    encode_forget,
    encode_pull,
    part_chunks,
    payload_bytes,
    push_chunks,
)
from services.wire.tables import encode_table
from worker.service.link import Link


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
        request = encode_pull(self._table.name, ids, versions, epoch=self._epoch)
        await self._link.send(request.ByteSize())
        received = done = 0
        with domain_errors():
            async for chunk in self._stub.Pull(request, timeout=self._deadline(len(ids))):
                received += chunk.ByteSize()
                await self._link.receive(chunk.ByteSize())
                block = decode_rows(chunk, self._table)
                part = slice(done, done + len(block))
                if not (np.array_equal(block.ids, ids[part]) and np.array_equal(block.versions, versions[part])):
                    raise Internal(f"rows {done} to {part.stop} of a pull are not those that were asked for")
                rows[places[part]] = block.rows
                done = part.stop
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
            for chunk in push_chunks(push, self._table, epoch=self._epoch, chunk_bytes=self._link.chunk_bytes):
                await self._link.send(chunk.ByteSize())
                self._link.uplink.count(chunk.ByteSize())
                sent += chunk.ByteSize()
                yield chunk

        with self._link.uplink.transfer(), domain_errors():
            await self._stub.Push(chunks(), timeout=self._deadline(len(push)))
        return sent

    async def forget(self, ids: NDArray[np.uint64], below: int) -> None:
        """Takes the rows out of the table whose version is below."""
        request = encode_forget(self._table.name, ids, below, epoch=self._epoch)
        await self._link.send(request.ByteSize())
        with domain_errors():
            await self._stub.Forget(request, timeout=self._link.deadline(request.ByteSize(), self._patience))

    async def put_dense(self, data: bytes) -> None:
        """Stores the dense parameters, a whole .npz file."""

        async def chunks() -> AsyncIterator[ps_pb2.DenseChunk]:
            for chunk in dense_chunks(self._table.name, data, self._link.chunk_bytes):
                await self._link.send(len(chunk.data))
                yield chunk

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

        async def chunks() -> AsyncIterator[ps_pb2.PartChunk]:
            for chunk in part_chunks(self._table.name, checkpoint, name, data, self._link.chunk_bytes):
                await self._link.send(len(chunk.data))
                yield chunk

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
        return self._link.deadline(payload_bytes(self._table, rows), self._patience)
