"""The parameter servers, as the keepers of a job's checkpoints."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from dispatcher.service.settings import DispatcherSettings
from protos import ps_pb2, ps_pb2_grpc
from services.domain.errors import FailedPrecondition, StaleEpoch, Unavailable
from services.domain.jobs import JobSpec
from services.runtime.channel import channel
from services.runtime.retry import repeated
from services.runtime.security import Credentials
from services.runtime.status import domain_errors
from services.wire.tables import encode_table

_CHUNK_BYTES = 1 << 20
_CALL_SECONDS = 60.0
_SAVE_SECONDS = 3600.0  # of a shard that writes gigabytes to a disk

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Kept:
    """What the servers hold of a table.

    Attributes:
        epoch: the latest on any server.
        manifest: of the committed checkpoint, empty if there is none.
        rows: on all servers.
        durable: whether checkpoints and logged samples outlive the first server.
    """

    epoch: int
    manifest: bytes
    rows: int
    durable: bool


class CheckpointStore:
    """Calls to all shards of one job; repeated while a server is unavailable."""

    def __init__(self, job: JobSpec, settings: DispatcherSettings) -> None:
        """Opens a channel to every shard; `close` closes them."""
        self._table = encode_table(job.table)
        credentials = Credentials.read(settings)
        self._patience = settings.recovery_seconds
        self._channels = [
            channel(address, settings.max_message_bytes, credentials=credentials) for address in job.parameter_servers
        ]
        self._stubs = [ps_pb2_grpc.ParameterServerStub(each) for each in self._channels]  # type: ignore[no-untyped-call]

    async def close(self) -> None:
        """Closes all channels."""
        for each in self._channels:
            await each.close(None)

    async def find(self) -> Kept:
        """Makes sure that the table is there, and tells what is kept of it. Does not wait for absent servers.

        Raises:
            Unavailable: a server is away.
            FailedPrecondition: the table exists with another specification.
        """

        async def find(stub: Any) -> Any:
            with domain_errors():
                await stub.CreateTable(ps_pb2.CreateTableRequest(table=self._table), timeout=_CALL_SECONDS)
                return await stub.GetCheckpoint(ps_pb2.GetCheckpointRequest(table=self._table.name))

        found = await asyncio.gather(*(find(stub) for stub in self._stubs))
        return Kept(
            epoch=max(each.epoch for each in found),
            manifest=found[0].manifest,
            rows=sum(each.rows for each in found),
            durable=found[0].durable,
        )

    async def committed(self) -> Kept:
        """The committed checkpoint, and the latest epoch.

        Raises:
            FailedPrecondition: there is none any more.
            Unavailable: a server is away for too long.
        """
        kept = await repeated(self.find, self._patience, on=Unavailable)
        if not kept.manifest:
            raise FailedPrecondition(
                f"the parameter server has lost table {self._table.name!r}: it was restarted and its store is memory, "
                "which a store in Redis or a checkpoint directory (ESD_PS_CHECKPOINT_DIR) would have survived, or its "
                "Redis is empty"
            )
        return kept

    async def restore(self, checkpoint: int, epoch: int) -> None:
        """Puts every shard back to a checkpoint and begins an epoch there."""
        request = ps_pb2.RestoreRequest(table=self._table, checkpoint=checkpoint, epoch=epoch)
        await self._on(self._stubs, lambda stub: stub.Restore(request, timeout=self._patience))

    async def put_part(self, checkpoint: int, name: str, data: bytes) -> None:
        """Stores a part at the first shard."""

        async def chunks() -> AsyncIterator[ps_pb2.PartChunk]:
            for start in range(0, max(1, len(data)), _CHUNK_BYTES):
                end = start + _CHUNK_BYTES
                yield ps_pb2.PartChunk(
                    table=self._table.name,
                    checkpoint=checkpoint,
                    name=name,
                    data=data[start:end],
                    last=end >= len(data),
                )

        await self._repeated(lambda: self._stubs[0].PutPart(chunks(), timeout=_CALL_SECONDS))

    async def get_part(self, checkpoint: int, name: str) -> bytes:
        """Reads a part from the first shard."""

        async def get() -> bytes:
            request = ps_pb2.GetPartRequest(table=self._table.name, checkpoint=checkpoint, name=name)
            data = bytearray()
            async for chunk in self._stubs[0].GetPart(request, timeout=_CALL_SECONDS):
                data += chunk.data
            return bytes(data)

        return await self._repeated(get)

    async def save(self, checkpoint: int, epoch: int) -> tuple[int, int]:
        """Makes every shard's share of a cut durable; how many rows have changed since the last, and their bytes."""
        request = ps_pb2.SaveRequest(table=self._table.name, epoch=epoch, checkpoint=checkpoint)
        saved = await self._on(self._stubs, lambda stub: stub.Save(request, timeout=_SAVE_SECONDS))
        return sum(each.rows for each in saved), sum(each.bytes for each in saved)

    async def commit(self, checkpoint: int, epoch: int, manifest: bytes, keep: int) -> None:
        """Makes a checkpoint valid at the first shard, then at the others; the last `keep` of them stay."""
        first, *others = self._stubs

        def request(text: bytes) -> ps_pb2.CommitRequest:
            return ps_pb2.CommitRequest(
                table=self._table.name, epoch=epoch, checkpoint=checkpoint, manifest=text, keep=keep
            )

        await self._repeated(lambda: first.Commit(request(manifest), timeout=_CALL_SECONDS))
        await self._on(others, lambda stub: stub.Commit(request(b""), timeout=_CALL_SECONDS))

    async def append_samples(self, entry: ps_pb2.SampleLogEntry, epoch: Callable[[], int]) -> None:
        """Adds to the sample log, at the first shard. `epoch` tells the present one.

        Raises:
            StaleEpoch: another dispatcher has taken the job over, or the server has lost its rows.
            Unavailable: the server is away for too long.
        """

        async def append() -> None:
            request = ps_pb2.AppendSamplesRequest(table=self._table.name, epoch=epoch(), entry=entry)
            with domain_errors():
                await self._stubs[0].AppendSamples(request, timeout=_CALL_SECONDS)

        # An epoch that has just begun here begins at the server a moment later.
        await repeated(append, self._patience, on=(StaleEpoch, Unavailable))

    async def read_samples(self, epoch: int) -> list[ps_pb2.SampleLogEntry]:
        """Begins an epoch at the first shard, and reads the sample log."""

        async def read() -> list[ps_pb2.SampleLogEntry]:
            request = ps_pb2.ReadSamplesRequest(table=self._table.name, epoch=epoch)
            return [entry async for entry in self._stubs[0].ReadSamples(request, timeout=_CALL_SECONDS)]

        return await self._repeated(read)

    async def trim_samples(self, position: int | None, epoch: int) -> None:
        """Drops what lies before a position of the sample log; None: everything."""
        request = ps_pb2.TrimSamplesRequest(
            table=self._table.name, epoch=epoch, position=position, all=position is None
        )
        await self._repeated(lambda: self._stubs[0].TrimSamples(request, timeout=_CALL_SECONDS))

    async def _on(self, stubs: Sequence[Any], call: Callable[[Any], Awaitable[Any]]) -> list[Any]:
        return await asyncio.gather(*(self._repeated(partial(call, stub)) for stub in stubs))

    async def _repeated(self, call: Callable[[], Awaitable[T]]) -> T:
        async def once() -> T:
            with domain_errors():
                return await call()

        return await repeated(once, self._patience, on=Unavailable)
