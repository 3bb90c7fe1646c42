"""The rpcs of `protos/ps.proto`: decode, let the core work in the store's threads, encode."""

# ruff: noqa: N802, D102, ARG002 - names, arguments and documentation of the rpcs are the proto's
from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

import grpc

from protos import ps_pb2, ps_pb2_grpc
from ps_server.core.shard import Shard
from ps_server.core.table import Pushed, Table
from ps_server.core.tables import Tables
from ps_server.service.arrivals import Arrivals
from ps_server.service.checkpoint_calls import CheckpointCalls
from ps_server.service.pulls import pull_blocks
from ps_server.service.sample_log_calls import SampleLogCalls
from ps_server.service.settings import ParameterServerSettings
from ps_server.service.store_pool import StorePool
from ps_server.service.uploads import receive_upload
from services.domain.errors import InvalidArgument, NotFound
from services.wire.rows import decode_forget, decode_pull, decode_push, dense_chunks, encode_rows, rows_per_chunk
from services.wire.tables import decode_table, encode_table

Context = grpc.aio.ServicerContext[Any, Any]

# A pull gives up this much before the call's deadline, so that the reason still reaches the caller: this share of the
# time that is left, and at most so many seconds.
_REPLY_SHARE = 0.25
_REPLY_SECONDS = 1.0


class ParameterServer(CheckpointCalls, SampleLogCalls, ps_pb2_grpc.ParameterServerServicer):
    """The service. Comments on the rpcs are in the proto."""

    def __init__(
        self, tables: Tables, shard: Shard, store_name: str, pool: StorePool, settings: ParameterServerSettings
    ) -> None:
        self._tables = tables
        self._shard = shard
        self._store_name = store_name
        self._pool = pool
        self._settings = settings
        self._arrivals: defaultdict[str, Arrivals] = defaultdict(Arrivals)

    async def CreateTable(self, request: ps_pb2.CreateTableRequest, context: Context) -> ps_pb2.CreateTableResponse:
        spec = decode_table(request.table)
        return ps_pb2.CreateTableResponse(created=await self._pool.write(self._tables.create, spec))

    async def Pull(self, request: ps_pb2.PullRequest, context: Context) -> AsyncIterator[ps_pb2.RowChunk]:
        table = self._tables.get(request.table)
        ids, wanted = decode_pull(request)
        blocks = pull_blocks(
            table,
            self._arrivals[table.spec.name],
            self._pool,
            ids,
            wanted,
            epoch=request.epoch,
            rows_per_block=rows_per_chunk(table.spec),
            deadline=self._wait_until(context),
        )
        async for block in blocks:
            yield encode_rows(block)

    async def Push(self, request_iterator: AsyncIterator[ps_pb2.PushChunk], context: Context) -> ps_pb2.PushResponse:
        total = ps_pb2.PushResponse()
        table: Table | None = None
        async for chunk in request_iterator:
            if table and chunk.table != table.spec.name:
                raise InvalidArgument(f"the push began for table {table.spec.name!r} and goes on for {chunk.table!r}")
            table = self._tables.get(chunk.table)
            for pushed in await self._push(table, chunk):
                total.stored += pushed.stored
                total.already_known += pushed.already_known
        return total

    async def Forget(self, request: ps_pb2.ForgetRequest, context: Context) -> ps_pb2.ForgetResponse:
        table = self._tables.get(request.table)
        ids, below = decode_forget(request)
        return ps_pb2.ForgetResponse(rows=await self._pool.write(table.forget, ids, below, request.epoch))

    async def Scan(self, request: ps_pb2.ScanRequest, context: Context) -> AsyncIterator[ps_pb2.RowChunk]:
        blocks = self._tables.get(request.table).scan()
        while block := await self._pool.read(next, blocks, None):
            yield encode_rows(block)

    async def PutDense(
        self, request_iterator: AsyncIterator[ps_pb2.DenseChunk], context: Context
    ) -> ps_pb2.PutDenseResponse:
        knob = self._settings.variable("max_dense_bytes")
        last, data = await receive_upload(request_iterator, _table_of, self._settings.max_dense_bytes, knob)
        await self._pool.write(self._tables.get(last.table).put_dense, data)
        return ps_pb2.PutDenseResponse(bytes=len(data))

    async def GetDense(self, request: ps_pb2.GetDenseRequest, context: Context) -> AsyncIterator[ps_pb2.DenseChunk]:
        data = await self._pool.read(self._tables.get(request.table).get_dense)
        if data is None:
            raise NotFound(f"table {request.table!r} has no dense parameters yet; PutDense stores them")
        for chunk in dense_chunks(request.table, data):
            yield chunk

    async def Describe(self, request: ps_pb2.DescribeServerRequest, context: Context) -> ps_pb2.DescribeServerResponse:
        states = [
            ps_pb2.TableState(
                spec=encode_table(table.spec),
                rows=await self._pool.read(table.stored_rows),
                pending_gradients=table.pending_gradients(),
                waiting_pulls=self._arrivals[table.spec.name].waiting,
            )
            for table in self._tables.all()
        ]
        return ps_pb2.DescribeServerResponse(
            store=self._store_name, shard=self._shard.index, shards=self._shard.count, tables=states
        )

    async def _push(self, table: Table, chunk: ps_pb2.PushChunk) -> list[Pushed]:
        loop = asyncio.get_running_loop()
        arrivals = self._arrivals[table.spec.name]

        def announced(pushed: Pushed) -> Pushed:
            # From here and not after the await: a caller that hangs up must not leave others waiting.
            loop.call_soon_threadsafe(arrivals.announce, pushed.ids, pushed.versions)
            return pushed

        def apply() -> list[Pushed]:
            push = decode_push(chunk, table.spec)
            pushed = []
            if chunk.HasField("rows"):
                pushed.append(announced(table.push_rows(push.rows, chunk.epoch)))
            if chunk.HasField("gradients"):
                pushed.append(announced(table.push_gradients(push.gradients, chunk.epoch)))
            return pushed

        return await self._pool.write(apply)

    def _wait_until(self, context: Context) -> float:
        remaining = context.time_remaining()
        allowed = self._settings.pull_wait_seconds
        if remaining is not None:
            allowed = min(allowed, max(0.0, remaining - min(_REPLY_SECONDS, _REPLY_SHARE * remaining)))
        return asyncio.get_running_loop().time() + allowed


def _table_of(chunk: ps_pb2.DenseChunk) -> str:
    return f"table {chunk.table!r}"
