"""The RPCs of `protos/ps.proto`: each decodes its request, calls the core in a thread of the store, and encodes."""

# ruff: noqa: N802, D102, ARG002 - names, arguments and documentation of the rpcs are the proto's
from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from functools import partial
from typing import Any

import grpc

from esd.protos import ps_pb2, ps_pb2_grpc
from esd.ps_server.core.parts import part_of
from esd.ps_server.core.shard import Shard
from esd.ps_server.core.store import BlobStore
from esd.ps_server.core.tables import Tables
from esd.ps_server.service.changes import ChangesService
from esd.ps_server.service.exchange import ExchangeService
from esd.ps_server.service.settings import ParameterServerSettings
from esd.ps_server.service.store_access import StoreThreads
from esd.ps_server.service.sums import SumService
from esd.ps_server.service.uploads import receive_upload
from esd.ps_server.service.waiting import BYTES_PER_PULLED_ID, WaitingPulls
from esd.services.domain.claimants import check_claimant
from esd.services.domain.errors import FailedPrecondition, InvalidArgument, NotFound, PermissionDenied, StaleEpoch
from esd.services.domain.parts import PIECE_BYTES
from esd.services.domain.worker_set import WorkerSet
from esd.services.runtime.byte_budget import ByteBudget
from esd.services.runtime.caller import present_caller
from esd.services.runtime.roles import DENSE_PART, PARTS_OF_WORKERS, Role
from esd.services.wire.batches import decode_log_entry, encode_log_entry
from esd.services.wire.rows import (
    decode_forget,
    decode_lookup,
    encode_rows,
    encode_values,
    pieces,
    values_per_chunk,
)
from esd.services.wire.tables import decode_table, encode_table

Context = grpc.aio.ServicerContext[Any, Any]

SERVICE = ps_pb2.DESCRIPTOR.services_by_name["ParameterServer"].full_name

_LONGER_PART = "a longer part of a checkpoint is stored in pieces: NAME, NAME-1, NAME-2 and so on"
_PART_NAME = re.compile(r"[a-z]{1,32}(-[1-9][0-9]{0,3})?")


def add_to_server(servicer: ParameterServer, server: Any) -> None:
    """Registers the RPCs with a grpc.aio server; Exchange and Sum pass their messages as undecoded bytes."""
    ps_pb2_grpc.add_ParameterServerServicer_to_server(servicer, server)  # type: ignore[no-untyped-call]
    streams = {"Exchange": servicer.Exchange, "Sum": servicer.Sum}
    handlers = {name: grpc.stream_stream_rpc_method_handler(method) for name, method in streams.items()}
    server.add_registered_method_handlers(SERVICE, handlers)


class ParameterServer(ps_pb2_grpc.ParameterServerServicer):
    """The service. Comments on the rpcs are in the proto."""

    def __init__(
        self, tables: Tables, shard: Shard, store_name: str, threads: StoreThreads, settings: ParameterServerSettings
    ) -> None:
        self._tables = tables
        self._shard = shard
        self._store_name = store_name
        self._threads = threads
        self._settings = settings
        self._budget = ByteBudget(settings.max_waiting_bytes, settings.variable("max_waiting_bytes"))
        self._waiting = _WaitingPulls()
        self._exchange = ExchangeService(tables, self._waiting, threads, self._budget, settings)
        self._sums = SumService(tables, shard, settings)
        self._changes = ChangesService(tables, shard, threads, settings)

    def refuse_waiting(self, reason: FailedPrecondition) -> None:
        """Ends all waiting pulls with this error, because their rows will not come."""
        for waiting in self._waiting.values():
            waiting.refuse(reason)

    async def DescribeServer(
        self, request: ps_pb2.DescribeServerRequest, context: Context
    ) -> ps_pb2.DescribeServerResponse:
        states = [
            ps_pb2.TableState(
                spec=encode_table(table.spec),
                rows=await self._threads.read(table.stored_rows),
                pending_gradients=table.pending_gradients(),
                waiting_pulls=self._waiting[table.spec.name].count,
            )
            for table in self._tables.all()
        ]
        return ps_pb2.DescribeServerResponse(
            store=self._store_name, shard=self._shard.index, shards=self._shard.count, tables=states
        )

    # Rows.

    async def CreateTable(self, request: ps_pb2.CreateTableRequest, context: Context) -> ps_pb2.CreateTableResponse:
        spec = decode_table(request.table)
        if request.shards:
            self._shard.check_listed(request.shard, request.shards)
        created = await self._threads.write(self._tables.create, spec)
        if request.to_train:
            self._tables.get(spec.name).history.check_unfinished()
        if request.claimant:
            await self._threads.write(self._tables.get(spec.name).history.claim, check_claimant(request.claimant))
        return ps_pb2.CreateTableResponse(created=created, max_dense_bytes=self._settings.max_dense_bytes)

    async def Exchange(self, request_iterator: AsyncIterator[bytes], context: Context) -> None:
        await self._exchange.serve(context)

    async def Lookup(self, request: ps_pb2.LookupRequest, context: Context) -> AsyncIterator[ps_pb2.LookupResponse]:
        table = self._tables.get(request.table)
        ids = decode_lookup(request)
        with self._budget.share() as share:
            share.take(BYTES_PER_PULLED_ID * len(ids))
            size = values_per_chunk(table.spec)
            for start in range(0, len(ids), size):
                block = await self._threads.read(table.look_up, ids[start : start + size], request.checkpoint)
                yield encode_values(block, table.spec)

    async def Forget(self, request: ps_pb2.ForgetRequest, context: Context) -> ps_pb2.ForgetResponse:
        table = self._tables.get(request.table)
        ids, below = decode_forget(request)
        return ps_pb2.ForgetResponse(rows=await self._threads.write(table.forget, ids, below, request.epoch))

    async def Scan(self, request: ps_pb2.ScanRequest, context: Context) -> AsyncIterator[ps_pb2.ScanResponse]:
        blocks = self._tables.get(request.table).scan()
        while block := await self._threads.read(next, blocks, None):
            response = ps_pb2.ScanResponse()
            encode_rows(block, response.rows)
            yield response

    async def Changes(self, request: ps_pb2.ChangesRequest, context: Context) -> AsyncIterator[ps_pb2.ChangesResponse]:
        async with aclosing(self._changes.serve(request)) as messages:
            async for message in messages:
                yield message

    # Dense parameters.

    async def Sum(self, request_iterator: AsyncIterator[bytes], context: Context) -> None:
        await self._sums.serve(context)

    async def PutDense(
        self, request_iterator: AsyncIterator[ps_pb2.PutDenseRequest], context: Context
    ) -> ps_pb2.PutDenseResponse:
        limit, remedy = self._settings.max_dense_bytes, f"{self._settings.variable('max_dense_bytes')} sets the limit"
        with self._budget.share() as share:
            last, data = await receive_upload(request_iterator, _dense_of, limit, remedy, share)
            await self._threads.write(self._tables.get(last.table).put_dense, data, last.epoch)
        return ps_pb2.PutDenseResponse(bytes=len(data))

    async def GetDense(
        self, request: ps_pb2.GetDenseRequest, context: Context
    ) -> AsyncIterator[ps_pb2.GetDenseResponse]:
        blobs = self._tables.get(request.table).blobs
        stored = part_of(blobs, request.checkpoint, DENSE_PART) if request.checkpoint else _latest_dense(blobs)
        if (data := await self._threads.read(next, stored, None)) is None:
            where = f" at checkpoint {request.checkpoint}" if request.checkpoint else " yet; PutDense stores them"
            raise NotFound(f"table {request.table!r} has no dense parameters{where}")
        while data is not None:
            for piece, _ in pieces(data):
                yield ps_pb2.GetDenseResponse(data=piece)
            data = await self._threads.read(next, stored, None)

    # Checkpoints (docs/recovery-protocol.md).

    async def Cut(self, request: ps_pb2.CutRequest, context: Context) -> ps_pb2.CutResponse:
        history = self._tables.get(request.table).history
        complete = await self._threads.write(
            partial(history.cut, last=request.last),
            request.epoch,
            request.checkpoint,
            request.worker,
            WorkerSet.of_words((request.contributors, request.more_contributors)).mask,
        )
        return ps_pb2.CutResponse(complete=complete)

    async def PutPart(
        self, request_iterator: AsyncIterator[ps_pb2.PutPartRequest], context: Context
    ) -> ps_pb2.PutPartResponse:
        chunks = _allowed_parts(request_iterator)
        with self._budget.share() as share:
            last, data = await receive_upload(chunks, _part_of, PIECE_BYTES, _LONGER_PART, share)
            history = self._tables.get(last.table).history
        await self._threads.write(history.put_part, last.checkpoint, last.name, data, last.epoch)
        return ps_pb2.PutPartResponse(bytes=len(data))

    async def GetPart(self, request: ps_pb2.GetPartRequest, context: Context) -> AsyncIterator[ps_pb2.GetPartResponse]:
        _check_part(request.name)
        blobs = self._tables.get(request.table).blobs
        data = await self._threads.read(blobs.get_part, request.checkpoint, request.name)
        if data is None:
            raise NotFound(f"checkpoint {request.checkpoint} of table {request.table!r} has no part {request.name!r}")
        for piece, _ in pieces(data):
            yield ps_pb2.GetPartResponse(data=piece)

    async def Save(self, request: ps_pb2.SaveRequest, context: Context) -> ps_pb2.SaveResponse:
        table = self._tables.get(request.table)
        rows, size = await self._threads.write(table.history.save, request.epoch, request.checkpoint)
        return ps_pb2.SaveResponse(rows=rows, bytes=size, stored_rows=await self._threads.read(table.stored_rows))

    async def Commit(self, request: ps_pb2.CommitRequest, context: Context) -> ps_pb2.CommitResponse:
        history = self._tables.get(request.table).history
        commit = partial(history.commit, finished=request.finished)
        await self._threads.write(commit, request.epoch, request.checkpoint, request.manifest, request.keep)
        return ps_pb2.CommitResponse()

    async def BeginEpoch(self, request: ps_pb2.BeginEpochRequest, context: Context) -> ps_pb2.BeginEpochResponse:
        history = self._tables.get(request.table).history
        begin = partial(history.begin_epoch, takes_over=request.takes_over)
        await self._threads.write(begin, request.epoch, check_claimant(request.claimant))
        self._sums.refuse(request.table, before=request.epoch)
        return ps_pb2.BeginEpochResponse()

    async def Restore(self, request: ps_pb2.RestoreRequest, context: Context) -> ps_pb2.RestoreResponse:
        spec = decode_table(request.table)
        claimant = check_claimant(request.claimant)

        def restore() -> int:
            self._tables.create(spec)
            return self._tables.get(spec.name).restore(request.checkpoint, request.epoch, claimant)

        rows = await self._threads.write(restore)
        now = f"table {spec.name!r} has gone back to checkpoint {request.checkpoint} and is in epoch {request.epoch}"
        over = StaleEpoch(f"{now}: rows that pulls waited for before will not come")
        self._waiting[spec.name].refuse(over, before=request.epoch)
        self._sums.refuse(spec.name, before=request.epoch)
        return ps_pb2.RestoreResponse(rows=rows)

    async def GetCheckpoint(
        self, request: ps_pb2.GetCheckpointRequest, context: Context
    ) -> ps_pb2.GetCheckpointResponse:
        table = self._tables.get(request.table)
        record = table.history.record
        return ps_pb2.GetCheckpointResponse(
            epoch=record.epoch,
            checkpoint=record.last.iteration,
            manifest=record.last.manifest,
            checkpoint_rows=record.last_cut.rows,
            checkpoint_trainings=record.last_cut.trainings,
            rows=await self._threads.read(table.stored_rows),
            durable=table.samples.durable,
            finished=record.finished,
        )

    # The sample log (docs/recovery-protocol.md).

    async def AppendSamples(
        self, request: ps_pb2.AppendSamplesRequest, context: Context
    ) -> ps_pb2.AppendSamplesResponse:
        entry = decode_log_entry(request.entry)
        await self._threads.write(self._tables.get(request.table).samples.append, entry, request.epoch)
        return ps_pb2.AppendSamplesResponse()

    async def ReadSamples(
        self, request: ps_pb2.ReadSamplesRequest, context: Context
    ) -> AsyncIterator[ps_pb2.ReadSamplesResponse]:
        entries = await self._threads.read(self._tables.get(request.table).samples.read, request.epoch)
        while entry := await self._threads.read(next, entries, None):
            yield ps_pb2.ReadSamplesResponse(entry=encode_log_entry(entry))

    async def TrimSamples(self, request: ps_pb2.TrimSamplesRequest, context: Context) -> ps_pb2.TrimSamplesResponse:
        samples = self._tables.get(request.table).samples
        if request.all:
            await self._threads.write(samples.clear, request.epoch)
        else:
            await self._threads.write(samples.trim, request.position, request.epoch)
        return ps_pb2.TrimSamplesResponse()


def _dense_of(chunk: ps_pb2.PutDenseRequest) -> str:
    return f"table {chunk.table!r} in epoch {chunk.epoch}"


async def _allowed_parts(chunks: AsyncIterator[ps_pb2.PutPartRequest]) -> AsyncIterator[ps_pb2.PutPartRequest]:
    """Yields the pieces of a part after checking that the caller may store a part of this name."""
    async for chunk in chunks:
        _check_part(chunk.name)
        yield chunk


def _check_part(name: str) -> None:
    """Checks the name of a part.

    Raises:
        InvalidArgument: no part can have this name.
        PermissionDenied: the part belongs to the dispatcher, and the caller has another role.
    """
    if not _PART_NAME.fullmatch(name):
        raise InvalidArgument(f"part name {name!r} must match {_PART_NAME.pattern}")
    caller = present_caller()
    if name.partition("-")[0] not in PARTS_OF_WORKERS and Role.DISPATCHER not in caller.roles:
        raise PermissionDenied(
            f"only the dispatcher stores and reads part {name!r} of a checkpoint, and {caller.identity} has the roles "
            f"{', '.join(sorted(caller.roles))}; workers store and read {', '.join(sorted(PARTS_OF_WORKERS))}"
        )


def _part_of(chunk: ps_pb2.PutPartRequest) -> str:
    return f"part {chunk.name!r} of checkpoint {chunk.checkpoint} of table {chunk.table!r} in epoch {chunk.epoch}"


class _WaitingPulls(dict[str, WaitingPulls]):
    """The waiting pulls, by table; an entry is made at its first use."""

    def __missing__(self, table: str) -> WaitingPulls:
        return self.setdefault(table, WaitingPulls(table))


def _latest_dense(blobs: BlobStore) -> Iterator[bytes | None]:
    """Yields the dense parameters, which are read by the caller of `next`: a thread, and not the event loop."""
    yield blobs.get_dense()
