"""The rpcs of checkpoints (docs/recovery.md)."""

# ruff: noqa: N802, D102, ARG002 - names, arguments and documentation of the rpcs are the proto's
from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import grpc

from protos import ps_pb2
from ps_server.core.tables import Tables
from ps_server.service.settings import ParameterServerSettings
from ps_server.service.store_pool import StorePool
from ps_server.service.uploads import receive_upload
from services.domain.errors import InvalidArgument, NotFound
from services.wire.rows import part_chunks
from services.wire.tables import decode_table

Context = grpc.aio.ServicerContext[Any, Any]

_PART_NAME = re.compile(r"[a-z]{1,32}")


class CheckpointCalls:
    """Cuts, commits and ways back. Comments on the rpcs are in the proto."""

    _tables: Tables
    _pool: StorePool
    _settings: ParameterServerSettings

    async def Cut(self, request: ps_pb2.CutRequest, context: Context) -> ps_pb2.CutResponse:
        history = self._tables.get(request.table).history
        complete = await self._pool.write(
            history.cut, request.epoch, request.checkpoint, request.worker, request.contributors
        )
        return ps_pb2.CutResponse(complete=complete)

    async def PutPart(
        self, request_iterator: AsyncIterator[ps_pb2.PartChunk], context: Context
    ) -> ps_pb2.PutPartResponse:
        knob = self._settings.variable("max_part_bytes")
        last, data = await receive_upload(request_iterator, _part_of, self._settings.max_part_bytes, knob)
        if not _PART_NAME.fullmatch(last.name):
            raise InvalidArgument(f"part name {last.name!r} must match {_PART_NAME.pattern}")
        await self._pool.write(self._tables.get(last.table).put_part, last.checkpoint, last.name, data)
        return ps_pb2.PutPartResponse(bytes=len(data))

    async def GetPart(self, request: ps_pb2.GetPartRequest, context: Context) -> AsyncIterator[ps_pb2.PartChunk]:
        table = self._tables.get(request.table)
        data = await self._pool.read(table.get_part, request.checkpoint, request.name)
        if data is None:
            raise NotFound(f"checkpoint {request.checkpoint} of table {request.table!r} has no part {request.name!r}")
        for chunk in part_chunks(request.table, request.checkpoint, request.name, data):
            yield chunk

    async def Save(self, request: ps_pb2.SaveRequest, context: Context) -> ps_pb2.SaveResponse:
        history = self._tables.get(request.table).history
        rows, size = await self._pool.write(history.save, request.epoch, request.checkpoint)
        return ps_pb2.SaveResponse(rows=rows, bytes=size)

    async def Commit(self, request: ps_pb2.CommitRequest, context: Context) -> ps_pb2.CommitResponse:
        history = self._tables.get(request.table).history
        await self._pool.write(history.commit, request.epoch, request.checkpoint, request.manifest, request.keep)
        return ps_pb2.CommitResponse()

    async def Restore(self, request: ps_pb2.RestoreRequest, context: Context) -> ps_pb2.RestoreResponse:
        spec = decode_table(request.table)

        def restore() -> int:
            self._tables.create(spec)
            return self._tables.get(spec.name).history.restore(request.checkpoint, request.epoch)

        return ps_pb2.RestoreResponse(rows=await self._pool.write(restore))

    async def GetCheckpoint(
        self, request: ps_pb2.GetCheckpointRequest, context: Context
    ) -> ps_pb2.GetCheckpointResponse:
        table = self._tables.get(request.table)
        record = table.history.record
        return ps_pb2.GetCheckpointResponse(
            epoch=record.epoch,
            checkpoint=record.last.cut,
            manifest=record.last.manifest,
            rows=await self._pool.read(table.stored_rows),
            durable=table.durable,
        )


def _part_of(chunk: ps_pb2.PartChunk) -> str:
    return f"part {chunk.name!r} of checkpoint {chunk.checkpoint} of table {chunk.table!r}"
