"""The tables of one parameter server."""

from __future__ import annotations

import threading
from dataclasses import fields

from esd.ps_server.core.shard import Shard
from esd.ps_server.core.store import Store
from esd.ps_server.core.table import Table
from esd.services.domain.errors import FailedPrecondition, Loading, NotFound, ResourceExhausted
from esd.services.domain.tables import TableSpec


class Tables:
    """All tables of a store, by name. Thread-safe.

    Args:
        store: the claimed store of the tables.
        shard: the share of their ids that this server holds.
        limit: the most tables, existing ones included, up to which new ones are created.
        loaded: whether all tables of the store are opened at once, with the errors of `load`; else every other method
            raises Loading until `load` has returned.
    """

    def __init__(self, store: Store, shard: Shard, limit: int = 1000, *, loaded: bool = True) -> None:
        self._store = store
        self._limit = limit
        self._shard = shard
        self._creation = threading.Lock()
        self._tables: dict[str, Table] = {}
        self._loaded = False
        if loaded:
            self.load()

    def load(self) -> None:
        """Opens every table of the store, with its pending gradients.

        Raises:
            Unavailable: the store's backend is out of reach.
            FailedPrecondition: the stored data of a table is damaged.
        """
        self._tables = {spec.name: self._open(spec) for spec in self._store.tables()}
        self._loaded = True

    def create(self, spec: TableSpec) -> bool:
        """Creates a table; returns False if an identical one exists.

        Raises:
            FailedPrecondition: a table of this name exists with another specification.
            ResourceExhausted: `limit` tables exist already.
        """
        self._check_loaded()
        with self._creation:
            if spec.name not in self._tables and len(self._tables) >= self._limit:
                raise ResourceExhausted(
                    f"table {spec.name!r} is not created: there are {len(self._tables)} tables, and max_tables "
                    f"(ESD_PS_MAX_TABLES) allows {self._limit}; raise it, or begin with an empty store"
                )
            existing, created = self._store.create(spec)
            _check_same(existing, spec)
            if spec.name not in self._tables:
                self._tables[spec.name] = self._open(spec)
            return created

    def get(self, name: str) -> Table:
        """Returns the table of a name. Raises NotFound if it does not exist."""
        table = self._tables.get(name)
        if table is None:
            self._check_loaded()
            raise NotFound(f"there is no table {name!r}; CreateTable makes it")
        return table

    def described(self, spec: TableSpec) -> Table:
        """Returns the table that a caller describes.

        Raises:
            NotFound: it does not exist.
            FailedPrecondition: it has another specification.
        """
        table = self.get(spec.name)
        _check_same(table.spec, spec)
        return table

    def all(self) -> list[Table]:
        """Returns all tables, ordered by name."""
        self._check_loaded()
        return [self._tables[name] for name in sorted(self._tables)]

    @property
    def progress(self) -> str:
        """How far `load` is, in words."""
        return (
            f"the parameter server loads its tables from its checkpoints: {self._store.loaded_bytes >> 20} MiB are "
            "read so far, each file twice"
        )

    def _check_loaded(self) -> None:
        if not self._loaded:
            raise Loading(self.progress)

    def _open(self, spec: TableSpec) -> Table:
        return Table(spec, self._store.open(spec), self._shard)


def _check_same(existing: TableSpec, asked: TableSpec) -> None:
    if existing.without_rate() != asked.without_rate():
        different = _differences(existing.without_rate(), asked.without_rate())
        raise FailedPrecondition(f"table {asked.name!r} exists with {different}")


def _differences(existing: TableSpec, asked: TableSpec) -> str:
    pairs = ((field.name, getattr(existing, field.name), getattr(asked, field.name)) for field in fields(TableSpec))
    return ", ".join(f"{name} {was} instead of {now}" for name, was, now in pairs if was != now)
