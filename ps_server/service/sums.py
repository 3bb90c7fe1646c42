"""The server side of sums over the workers of an epoch (protos/ps.proto, Sum).

A group is the members of one epoch of a job. A stream that breaks is continued by its worker on another one; a worker
that is refused, or leaves while a sum lacks it, ends the streams of all others.

Memory is bounded by reading: pieces stay in the network until they are due, or there is room for them. The piece that
is due next in a group is always read, so groups never wait for each other. Sums stay until all members have them, or
their room is needed.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any

import grpc

from esd.ps_server.core.dense_sums import DenseSums
from esd.ps_server.core.shard import Shard
from esd.ps_server.core.tables import Tables
from esd.ps_server.service.settings import ParameterServerSettings
from esd.ps_server.service.sum_groups import SumGroup
from esd.ps_server.service.sum_streams import SumMemory, SumStream
from esd.services.domain.errors import EsdError, FailedPrecondition, ResourceExhausted, StaleEpoch
from esd.services.domain.sum_pieces import SumMember
from esd.services.runtime import metrics
from esd.services.runtime.tasks import first_failure
from esd.services.wire.sums import decode_member, decode_pieces

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
        """Serves a stream of one worker until it leaves, or the stream breaks.

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
            group.lose(stream)

    def refuse(self, table: str, *, before: int) -> None:
        """Ends the groups of a table's epochs before one, which has begun."""
        for (name, epoch), group in tuple(self._groups.items()):
            if name == table and epoch < before:
                group.fail(StaleEpoch(f"epoch {epoch} of table {table!r} is over, and epoch {before} has begun"))

    def _group_of(self, member: SumMember) -> SumGroup:
        """Returns the group of a member, which is new where no other member has come.

        Raises:
            FailedPrecondition: the member has had a group, which is not here any more.
        """
        key = member.table, member.epoch
        if key not in self._groups:
            if member.resumes:
                raise FailedPrecondition(
                    f"the sums of epoch {member.epoch} of table {member.table!r}, with which worker slot {member.slot} "
                    "would continue, are not here any more: they have failed, or this server has started anew"
                )
            sums = DenseSums(member.members, self._shard.index, self._shard.count)
            self._groups[key] = SumGroup(member, sums, self._memory, partial(self._groups.__delitem__, key))
        return self._groups[key]

    async def _carry(self, stream: SumStream, group: SumGroup, context: Context) -> None:
        """Reads pieces and writes sums until the worker leaves or disappears, or the group fails."""
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
            pieces, received = decode_pieces(data)
            if pieces is None:
                group.leave(stream)
                return
            for name in (piece.name for piece in pieces):
                if name.length * name.dtype.itemsize > limit:
                    raise ResourceExhausted(
                        f"worker slot {stream.slot} sums a vector of {name.length} {name.dtype} values, and at most "
                        f"{limit} bytes are allowed ({self._settings.variable('max_dense_bytes')})"
                    )
            group.add(stream, pieces, received)
