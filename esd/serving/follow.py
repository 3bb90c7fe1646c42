"""A served model follows the job that trains it: rows and dense parameters of its parameter servers, as they change."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field, replace
from typing import NoReturn

from esd.model.fresh_rows import FreshRows
from esd.services.clients.parameter_server import ParameterServerConnection
from esd.services.clients.tables import TableClient
from esd.services.domain.changes import ChangedRows, RoundEnd
from esd.services.domain.errors import EsdError, ResourceExhausted
from esd.services.runtime import serving_metrics as metrics
from esd.services.runtime.retry import AWAY, Backoff
from esd.services.runtime.security import Credentials
from esd.services.runtime.tasks import all_of, run_in
from esd.services.runtime.threads import named_threads
from esd.services.wire.trained_models import dense_arrays
from esd.serving.folder import LoadedModel, ServedFolder
from esd.serving.fresh_lag import PAUSE_SECONDS, PartLag, show
from esd.serving.settings import ModelSettings

_TIMEOUT_SECONDS = 30.0
_REFUSED_SECONDS = 5.0  # until a call is made again that a server has refused

_log = logging.getLogger(__name__)


class _NoRoom(ResourceExhausted):
    """The newer rows take more memory than they may."""


@dataclass(slots=True)
class _Part:
    """A table at one server.

    Attributes:
        client: of the table.
        shard: number of the server.
        rows: the table's newer rows.
        leads: whether the dense parameters are taken at the ends of its rounds.
        position: of its last round.
        begun: when a part of the present round first came; None: no round has begun.
        lag: of its rows.
        told: the last error, which is logged once.
    """

    client: TableClient
    shard: int
    rows: FreshRows
    leads: bool
    position: bytes = b""
    begun: float | None = None
    lag: PartLag = field(default_factory=PartLag)
    told: str = ""


class Follower:
    """Keeps a served model at the rows and dense parameters of a job.

    Each newer row takes the place of the folder's. The dense parameters come from the job's newest checkpoint, and at
    its end they are the final ones. With a newer folder all rows are read again, since only rows that differ from its
    own are kept.

    Args:
        folder: of the model.
        settings: the parameter servers, the limit of memory and the credentials.
    """

    def __init__(self, folder: ServedFolder, settings: ModelSettings) -> None:
        self._folder = folder
        self._settings = settings
        self._credentials = Credentials.read(settings)
        self._thread = named_threads("esd-fresh")
        self._served = folder.current
        self._dense: tuple[int, bool] | None = None  # the checkpoint of the dense parameters, and whether it is the end

    async def run(self) -> NoReturn:
        """Follows until it is cancelled."""
        try:
            while True:
                self._folder.replaced.clear()
                self._served, self._dense = self._folder.current, None
                following = asyncio.create_task(self._follow(self._served), name="follow job")
                replaced = asyncio.create_task(self._folder.replaced.wait(), name="wait for a newer folder")
                try:
                    await asyncio.wait([following, replaced], return_when=asyncio.FIRST_COMPLETED)
                    if following.done():
                        _log.error(
                            "the rows of the job are followed no more until there is a newer folder: %s",
                            following.exception(),
                        )
                        await replaced
                finally:
                    following.cancel()
                    replaced.cancel()
                    await asyncio.gather(following, replaced, return_exceptions=True)
        finally:
            show(())
            self._thread.shutdown(wait=False, cancel_futures=True)

    async def _follow(self, loaded: LoadedModel) -> None:
        """Follows all tables of a folder at all servers. Raises _NoRoom."""
        async with AsyncExitStack() as stack:
            servers = [
                await stack.enter_async_context(
                    ParameterServerConnection(
                        address,
                        timeout=_TIMEOUT_SECONDS,
                        max_message_bytes=self._settings.max_message_bytes,
                        credentials=self._credentials,
                        caller="model",
                    )
                )
                for address in self._settings.servers
            ]
            parts = []
            for number, table in enumerate(loaded.model.job.tables):
                trained = loaded.model.table(number)
                trained.fresh = FreshRows(trained, len(servers))
                client = TableClient(servers, table)
                parts += [
                    _Part(client, shard, trained.fresh, leads=not number and not shard) for shard in range(len(servers))
                ]
            show([part.lag for part in parts])
            await all_of(self._follow_part(part, parts) for part in parts)

    async def _follow_part(self, part: _Part, parts: Sequence[_Part]) -> NoReturn:
        """Follows one table at one server, which may be away for any time, or refuse calls for a while."""
        backoff = Backoff(math.inf)
        while True:
            part.rows.abandon(part.shard)
            part.begun = None
            changes = part.client.changes(part.shard, part.position, pause=PAUSE_SECONDS)
            pause = _REFUSED_SECONDS
            try:
                async with aclosing(changes):
                    async for rows in changes:
                        part.lag.connected = True
                        await self._apply(part, rows, parts)
                        backoff.reset()
                        part.told = ""
                pause = PAUSE_SECONDS  # a server that stops has ended the call
            except _NoRoom:
                raise
            except EsdError as error:
                if isinstance(error, AWAY):
                    pause = backoff.next(error)
                if str(error) != part.told:
                    part.told = str(error)
                    _log.warning("table %r, shard %d: not followed: %s", part.client.table.name, part.shard, error)
            finally:
                part.lag.connected = False
            await asyncio.sleep(pause)

    async def _apply(self, part: _Part, rows: ChangedRows, parts: Sequence[_Part]) -> None:
        """Serves the rows of a message, and at the end of a round the dense parameters."""
        if part.begun is None:
            part.begun = time.monotonic()
        if rows.anew:
            metrics.FRESH_ANEW.inc()
            await run_in(self._thread, part.rows.begin, part.shard)
        if len(rows.ids):
            await run_in(self._thread, part.rows.put, part.shard, rows.ids, rows.values)
            metrics.FRESH_ROWS.inc(len(rows.ids))
            self._check_room(parts)
        if rows.end is None:
            return
        await run_in(self._thread, part.rows.complete, part.shard)
        self._check_room(parts)
        if part.leads:
            await self._take_dense(part.client, rows.end)
        part.position = rows.end.position
        age = rows.end.age + time.monotonic() - part.begun if rows.end.age else 0.0
        part.lag.served(age, finished=rows.end.finished)
        part.begun = None

    def _check_room(self, parts: Sequence[_Part]) -> None:
        held = sum(part.rows.memory_bytes for part in parts if not part.shard)
        metrics.FRESH_BYTES.set(held)
        if held > self._settings.fresh_bytes:
            raise _NoRoom(
                f"newer rows take {held} bytes, and {self._settings.variable('fresh_bytes')}="
                f"{self._settings.fresh_bytes} is the limit: raise it, or export the model again, since only rows that "
                "differ from the folder's are kept"
            )

    async def _take_dense(self, client: TableClient, end: RoundEnd) -> None:
        """Serves the dense parameters of a newer checkpoint, or of the end of the job, with the rows since then."""
        newest = end.checkpoint, end.finished
        if newest == self._dense or newest == (0, False):
            return
        try:
            data = await client.get_dense(checkpoint=0 if end.finished else end.checkpoint)
            model = await run_in(self._thread, lambda: self._served.model.with_parameters(dense_arrays(data)))
        except AWAY:
            raise
        except EsdError as error:
            _log.warning("the dense parameters of checkpoint %d are not served: %s", end.checkpoint, error)
        else:
            metrics.FRESH_DENSE.inc()
            if self._folder.current is self._served:
                self._served = self._folder.current = replace(self._served, model=model)
        self._dense = newest
