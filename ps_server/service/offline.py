"""Lists, verifies and restores the checkpoints of a store while no server runs on it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import cache
from pathlib import Path

from esd.ps_server.core.history import go_back
from esd.ps_server.core.history_record import Checkpoint, HistoryRecord
from esd.ps_server.core.parts import part_of
from esd.ps_server.core.shard import Shard
from esd.ps_server.core.store import Store, TableStore
from esd.ps_server.service.settings import ParameterServerSettings
from esd.ps_server.service.store_access import open_configured_store
from esd.services.domain.errors import EsdError, FailedPrecondition, InvalidArgument, NotFound
from esd.services.domain.tables import TableSpec
from esd.services.domain.versions import trainings

_PING_SECONDS = 2.0  # as often as a server renews its claim


class OfflineTable:
    """One table of a store, over all its shards.

    Attributes:
        name: the name of the table.
    """

    def __init__(self, spec: TableSpec, stores: Sequence[Store]) -> None:
        """Reads the records of all shards.

        Args:
            spec: the table.
            stores: one per shard, by its index.

        Raises:
            FailedPrecondition: a record is damaged.
        """
        self.name = spec.name
        self._stores = stores
        self._tables: list[TableStore] = [store.open(spec) for store in stores]
        self._records = [_record(spec, index, table) for index, table in enumerate(self._tables)]

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """The checkpoints that the table can return to, ascending, with their manifests."""
        return self._records[0].committed

    def rows(self, checkpoint: int) -> int:
        """Returns the number of rows that all shards together had stored at a checkpoint."""
        return sum(cut.rows for record in self._records for cut in record.cuts if cut.iteration == checkpoint)

    def part(self, checkpoint: int, name: str) -> bytes | None:
        """Returns a part of a checkpoint; None if it does not exist."""
        pieces = list(part_of(self._tables[0].blobs, checkpoint, name))
        return b"".join(pieces) if pieces else None

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Keeps other processes from changing the table during the block.

        Raises:
            FailedPrecondition: a server runs on the store.
        """
        with ExitStack() as stack:
            for store in self._stores:
                store.claim(exclusive=True)
                stack.callback(store.release)
            stack.enter_context(_kept_alive(self._stores))
            yield

    def damaged_rows(self, checkpoint: int) -> list[str]:
        """Verifies the rows of a checkpoint; returns a sentence per damage, none if the rows are whole.

        The table must be claimed.
        """
        if not checkpoint:
            return []
        damage = []
        rows = found_trainings = 0
        for shard, (record, table) in enumerate(zip(self._records, self._tables, strict=True)):
            later = [cut for cut in record.iterations if cut > checkpoint]
            try:
                for block in table.cuts.rows_at(checkpoint, later):
                    rows += len(block)
                    found_trainings += int(trainings(block.versions).sum())
            except FailedPrecondition as error:
                damage.append(f"shard {shard}: {error}")
        expected = self.rows(checkpoint)
        trained = sum(cut.trainings for record in self._records for cut in record.cuts if cut.iteration == checkpoint)
        if not damage and rows != expected:
            damage.append(f"{rows} rows exist, and the checkpoint had {expected}")
        elif not damage and found_trainings != trained:
            damage.append(f"the rows have {found_trainings} trainings together, they had {trained} at the checkpoint")
        return damage

    def restore(self, checkpoint: int) -> int:
        """Puts the claimed table back to a checkpoint; returns the number of rows that were put back.

        A damaged sample log is dropped, too. The first shard goes first: its record decides which checkpoint is valid,
        and after an interruption the other shards can still follow it there.
        """
        epoch = max(record.epoch for record in self._records) + 1
        changed = 0
        for index, (record, table) in enumerate(zip(self._records, self._tables, strict=True)):
            self._records[index], count = go_back(table, record, checkpoint, epoch)
            changed += count
        self._drop_damaged_log()
        return changed

    def _drop_damaged_log(self) -> None:
        log = self._tables[0].log
        try:
            for _ in log.read():
                pass
        except FailedPrecondition:
            log.clear()


@contextmanager
def offline_tables(settings: ParameterServerSettings) -> Iterator[list[OfflineTable]]:
    """Opens the tables of the store that parameter servers with these settings use, for any number of shards.

    Raises:
        InvalidArgument: the store is in memory and has no checkpoint directory.
        NotFound: the checkpoint directory does not exist.
        Unavailable: Redis is out of reach.
        FailedPrecondition: a record is damaged.
    """
    if settings.store.get_secret_value() == "memory" and settings.checkpoint_dir is None:
        raise InvalidArgument("store memory keeps no checkpoints: name the Redis, or the checkpoint directory")
    if isinstance(settings.checkpoint_dir, Path) and not settings.checkpoint_dir.is_dir():
        raise NotFound(f"there is no checkpoint directory {settings.checkpoint_dir}")
    with ExitStack() as stack:

        @cache  # the tables of a shard share its store, so that one claim covers all of them
        def opened(shard: Shard) -> Store:
            return stack.enter_context(closing(open_configured_store(settings, shard)))

        probe = opened(Shard())
        counts = [(spec, probe.shards(spec.name)) for spec in probe.tables()]
        yield [
            OfflineTable(spec, [opened(Shard(index, count)) for index in range(count)])
            for spec, count in counts
            if count
        ]


@contextmanager
def _kept_alive(stores: Sequence[Store]) -> Iterator[None]:
    """Renews the claims of the stores while the block runs."""
    ended = threading.Event()

    def ping() -> None:
        while not ended.wait(_PING_SECONDS):
            for store in stores:
                with suppress(EsdError):  # the operation that uses the store meets the same error and reports it
                    store.ping()

    thread = threading.Thread(target=ping, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _record(spec: TableSpec, shard: int, table: TableStore) -> HistoryRecord:
    data = table.history.load()
    return HistoryRecord() if data is None else HistoryRecord.decode(data, f"shard {shard} of table {spec.name!r}")
