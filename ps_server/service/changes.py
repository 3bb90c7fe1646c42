"""The call `Changes`: readers follow the rows of a table that change, in rounds.

Where rows are written, their ids are noted (esd.native.rows.ChangedRows). A reader asks for the ids since its last
round, and reads the rows then, so that a row that has changed often in a pause is sent once. Training waits for no
reader: one that does not read holds its call, and no more than the ids of a round.
"""

from __future__ import annotations

import asyncio
import secrets
import struct
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from esd.native.rows import ChangedRows
from esd.protos import ps_pb2
from esd.ps_server.core.shard import Shard
from esd.ps_server.core.table import Table
from esd.ps_server.core.tables import Tables
from esd.ps_server.service.settings import ParameterServerSettings
from esd.ps_server.service.store_access import StoreThreads
from esd.services.domain.errors import InvalidArgument
from esd.services.runtime import metrics
from esd.services.runtime.byte_budget import ByteBudget
from esd.services.wire.changes import encode_changed_rows
from esd.services.wire.rows import values_per_chunk
from esd.services.wire.tables import decode_table

_KEPT_SECONDS = 60.0  # for which changes are noted after the last reader has gone, which may come back
_POSITION = struct.Struct("<8sQ")  # of which notes it is, and their generation
_PAUSES_MS = range(50, 10_001)


@dataclass(slots=True)
class _Followed:
    """The notes of a table's changed rows.

    Attributes:
        changed: the notes.
        name: random, so that no position of other notes fits.
        readers: number of calls.
        end: drops the notes, if there are no readers; None while there are.
    """

    changed: ChangedRows
    name: bytes = field(default_factory=lambda: secrets.token_bytes(8))
    readers: int = 0
    end: asyncio.TimerHandle | None = None

    def position(self, generation: int) -> bytes:
        return _POSITION.pack(self.name, generation)

    def generation(self, position: bytes) -> int | None:
        """Returns the generation of a position; None if it is none of these notes."""
        if not position:
            return None
        if len(position) != _POSITION.size:
            raise InvalidArgument(f"position has {len(position)} bytes, one of an answer has {_POSITION.size}")
        name, generation = _POSITION.unpack(position)
        return int(generation) if name == self.name else None


class ChangesService:
    """Serves the readers of all tables.

    Args:
        tables: of the server.
        shard: its share of their ids.
        threads: that read rows.
        settings: of the server.
    """

    def __init__(self, tables: Tables, shard: Shard, threads: StoreThreads, settings: ParameterServerSettings) -> None:
        self._tables = tables
        self._shard = shard
        self._threads = threads
        # Of the rounds that are sent: a reader that does not read takes none of the memory that pulls wait in.
        self._budget = ByteBudget(settings.max_changed_bytes, settings.variable("max_changed_bytes"))
        self._settings = settings
        self._followed: dict[str, _Followed] = {}

    async def serve(self, request: ps_pb2.ChangesRequest) -> AsyncGenerator[ps_pb2.ChangesResponse]:
        """Yields the rounds of a reader, without end."""
        self._shard.check_listed(request.shard, request.shards)
        table = self._tables.described(decode_table(request.table))
        if request.pause_ms not in _PAUSES_MS:
            raise InvalidArgument(
                f"pause_ms is {request.pause_ms}, it must be in {_PAUSES_MS.start}..{_PAUSES_MS.stop - 1}"
            )
        with self._reader(table) as followed:
            generation = followed.generation(request.position)
            while True:
                # The state comes first: what was stored before it is in the round.
                record = table.history.record
                end = ps_pb2.ChangesResponse(checkpoint=record.last.iteration, finished=record.finished)
                changed = None
                if generation is not None:
                    changed = await self._threads.read(followed.changed.read, generation)
                if changed is None:
                    generation = await self._threads.read(followed.changed.begin)
                    async for message in self._all_rows(table):
                        yield message
                else:
                    generation, age, ids = changed
                    begun = asyncio.get_running_loop().time()
                    with self._budget.share() as share:
                        share.take(ids.nbytes)
                        size = values_per_chunk(table.spec)
                        for start in range(0, len(ids), size):
                            block = await self._threads.read(table.read, ids[start : start + size])
                            yield encode_changed_rows(block, table.spec)
                    if len(ids):
                        end.age_ms = round(1000 * (age + asyncio.get_running_loop().time() - begun))
                end.position = followed.position(generation)
                yield end
                await asyncio.sleep(request.pause_ms / 1000)

    async def _all_rows(self, table: Table) -> AsyncIterator[ps_pb2.ChangesResponse]:
        yield ps_pb2.ChangesResponse(anew=True)
        blocks = table.scan()
        while block := await self._threads.read(next, blocks, None):
            for piece in block.pieces(values_per_chunk(table.spec)):
                yield encode_changed_rows(piece, table.spec)

    @contextmanager
    def _reader(self, table: Table) -> Iterator[_Followed]:
        """Notes the changes of a table during the block, and for a while afterwards.

        Notes begin on the event loop, on which frames are applied, so that none is applied half with them.
        """
        name = table.spec.name
        followed = self._followed.get(name)
        if followed is None:
            followed = self._followed[name] = _Followed(ChangedRows(self._settings.max_changed_bytes))
            table.changed = followed.changed
        if followed.end is not None:
            followed.end.cancel()
            followed.end = None
        followed.readers += 1
        metrics.CHANGE_READERS.inc()
        try:
            yield followed
        finally:
            metrics.CHANGE_READERS.dec()
            followed.readers -= 1
            if not followed.readers:
                followed.end = asyncio.get_running_loop().call_later(_KEPT_SECONDS, self._forget, table)

    def _forget(self, table: Table) -> None:
        table.changed = None
        del self._followed[table.spec.name]
