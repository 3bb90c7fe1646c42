"""The server side of sums over the workers of an epoch (protos/ps.proto, Sum).

A group is the members of one epoch of a job. It lives as long as its streams: a stream that is refused, or that ends
while a sum lacks its worker, ends the streams of all others.

Memory is bounded by reading: pieces stay in the network until they are due, or there is room for them. The piece that
is due next in a group is always read, so groups never wait for each other.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import grpc

from esd.ps_server.core.dense_sums import DenseSums
from esd.ps_server.core.shard import Shard
from esd.ps_server.core.tables import Tables
from esd.ps_server.service.settings import ParameterServerSettings
from esd.ps_server.service.sum_groups import SumGroup, SumMemory, SumStream
from esd.services.domain.errors import EsdError, ResourceExhausted, StaleEpoch
from esd.services.domain.sum_pieces import SumMember
from esd.services.runtime import metrics
from esd.services.runtime.tasks import first_failure
from esd.services.wire.sums import decode_member, decode_piece

_log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]

_RECEIVED = metrics.SUM_BYTES.labels("received")
_EOF = grpc.aio.EOF  # type: ignore[attr-defined]  # missing in the stubs only


class SumService:
    """The groups of a server.

    Args:
        tables: of the server; a group belongs to the epoch of a table.
        shard: the place of the server in the list of its jobs.
        settings: of the server.
    """

    def __init__(self, tables: Tables, shard: Shard, settings: ParameterServerSettings) -> None:
        self._tables = tables
        self._shard = shard
        self._settings = settings
        self._memory = SumMemory(settings.max_sum_bytes)
        self._groups: dict[tuple[str, int], SumGroup] = {}

    async def serve(self, context: Context) -> None:
        """Serves the stream of one worker until it has closed its side.

        Raises:
            EsdError: the group is not the worker's, a piece is refused, or another member is lost or late.
        """
        if (data := await context.read()) is _EOF:
            return
        member = decode_member(data)
        history = self._tables.get(member.table).history
        history.check_epoch(member.epoch)
        history.check_unfinished()
        group = self._group_of(member)
        stream = group.join(member, min(member.patience, self._settings.pull_wait_seconds))
        try:
            await self._carry(stream, group, context)
        except EsdError as error:
            _log.info("the stream of sums of worker slot %d ends: %s", member.slot, error)
            raise
        finally:
            group.leave(stream)
            if not group.streams:
                self._groups = {key: each for key, each in self._groups.items() if each is not group}

    def refuse(self, table: str, *, before: int) -> None:
        """Ends the groups of a table's epochs before one, which has begun."""
        for (name, epoch), group in tuple(self._groups.items()):
            if name == table and epoch < before:
                group.fail(StaleEpoch(f"epoch {epoch} of table {table!r} is over, and epoch {before} has begun"))

    def _group_of(self, member: SumMember) -> SumGroup:
        """Returns the group of a member, which is new where no other member has come."""
        key = member.table, member.epoch
        if key not in self._groups:
            sums = DenseSums(member.members, self._shard.index, self._shard.count)
            self._groups[key] = SumGroup(member, sums, self._memory)
        return self._groups[key]

    async def _carry(self, stream: SumStream, group: SumGroup, context: Context) -> None:
        """Reads pieces and writes sums until the worker closes its side or disappears, or the group fails."""
        try:
            async with asyncio.TaskGroup() as tasks:
                others = [tasks.create_task(each) for each in (stream.write(context), stream.failed())]
                try:
                    await self._read(stream, group, context)
                except EsdError as error:
                    group.refuse(stream, error)
                    await asyncio.wait(others)
                for task in others:
                    task.cancel()
        except* grpc.aio.InternalError:
            pass  # gRPC raises this if the peer disappears in the middle of a message
        except* EsdError as failures:
            raise first_failure(failures) from None

    async def _read(self, stream: SumStream, group: SumGroup, context: Context) -> None:
        limit = self._settings.max_dense_bytes
        while True:
            await self._memory.room_for(stream, group.sums)
            if (data := await context.read()) is _EOF:
                return
            _RECEIVED.inc(len(data))
            piece = decode_piece(data)
            name = piece.name
            if name.length * name.dtype.itemsize > limit:
                raise ResourceExhausted(
                    f"worker slot {stream.slot} sums a vector of {name.length} {name.dtype} values, and at most "
                    f"{limit} bytes are allowed ({self._settings.variable('max_dense_bytes')})"
                )
            group.add(stream, piece)
