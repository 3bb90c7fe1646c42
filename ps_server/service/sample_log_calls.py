"""The rpcs of the sample log (docs/recovery.md)."""

# ruff: noqa: N802, D102, ARG002 - names, arguments and documentation of the rpcs are the proto's
from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc

from protos import ps_pb2
from ps_server.core.sample_log import LogEntry
from ps_server.core.tables import Tables
from ps_server.service.store_pool import StorePool

Context = grpc.aio.ServicerContext[Any, Any]


class SampleLogCalls:
    """Appending, reading, trimming. Comments on the rpcs are in the proto."""

    _tables: Tables
    _pool: StorePool

    async def AppendSamples(
        self, request: ps_pb2.AppendSamplesRequest, context: Context
    ) -> ps_pb2.AppendSamplesResponse:
        entry = LogEntry(request.entry.position, request.entry.samples, request.entry.batch)
        table = self._tables.get(request.table)
        await self._pool.write(table.append_samples, entry, request.epoch)
        return ps_pb2.AppendSamplesResponse()

    async def ReadSamples(
        self, request: ps_pb2.ReadSamplesRequest, context: Context
    ) -> AsyncIterator[ps_pb2.SampleLogEntry]:
        entries = await self._pool.write(self._tables.get(request.table).read_samples, request.epoch)
        while entry := await self._pool.read(next, entries, None):
            yield ps_pb2.SampleLogEntry(position=entry.position, samples=entry.samples, batch=entry.batch)

    async def TrimSamples(self, request: ps_pb2.TrimSamplesRequest, context: Context) -> ps_pb2.TrimSamplesResponse:
        position = None if request.all else request.position
        await self._pool.write(self._tables.get(request.table).trim_samples, position, request.epoch)
        return ps_pb2.TrimSamplesResponse()
