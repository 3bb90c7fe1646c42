"""A store of one's own: rows in memory, checkpoints' parts and the dense parameters in an SQLite file."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from esd.ps_server.core.store import TableStore
from esd.ps_server.stores.memory import MemoryStore
from esd.services.domain.tables import TableSpec

_LATEST = -1  # in place of a checkpoint, for the dense parameters that were stored last


class SqliteBlobs:
    """A BlobStore over one SQLite file. A connection per call, since calls come from several threads."""

    def __init__(self, path: Path, table: str) -> None:
        self._path = path
        self._table = table
        self._run("CREATE TABLE IF NOT EXISTS part (owner, checkpoint, name, data, UNIQUE (owner, checkpoint, name))")

    def put_part(self, checkpoint: int, name: str, data: bytes) -> None:
        """See BlobStore.put_part."""
        self._run("REPLACE INTO part VALUES (?, ?, ?, ?)", self._table, checkpoint, name, data)

    def get_part(self, checkpoint: int, name: str) -> bytes | None:
        """See BlobStore.get_part."""
        wanted = "SELECT data FROM part WHERE owner = ? AND checkpoint = ? AND name = ?"
        found = self._run(wanted, self._table, checkpoint, name)
        return found[0][0] if found else None

    def checkpoints(self) -> set[int]:
        """See BlobStore.checkpoints."""
        rows = self._run("SELECT checkpoint FROM part WHERE owner = ? AND checkpoint <> ?", self._table, _LATEST)
        return {checkpoint for (checkpoint,) in rows}

    def drop_parts(self, checkpoint: int) -> None:
        """See BlobStore.drop_parts."""
        self._run("DELETE FROM part WHERE owner = ? AND checkpoint = ?", self._table, checkpoint)

    def put_dense(self, data: bytes) -> None:
        """See BlobStore.put_dense."""
        self.put_part(_LATEST, "dense", data)

    def get_dense(self) -> bytes | None:
        """See BlobStore.get_dense."""
        return self.get_part(_LATEST, "dense")

    def _run(self, statement: str, *values: Any) -> list[Any]:
        with closing(sqlite3.connect(self._path)) as database, database:
            return database.execute(statement, values).fetchall()


class SqliteStore(MemoryStore):
    """A MemoryStore that keeps one of the six places of a table in SQLite."""

    name = "sqlite"

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def open(self, spec: TableSpec) -> TableStore:
        """Opens a table in memory, with its blobs in the file."""
        return replace(super().open(spec), blobs=SqliteBlobs(self._path, spec.name))
