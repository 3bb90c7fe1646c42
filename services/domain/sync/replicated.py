"""Replicated rows (FAE, SCARS): on demand, but for the hottest rows, which all workers train and nothing pushes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from esd.services.domain.errors import InvalidArgument
from esd.services.domain.sync.way import Sync


@dataclass(frozen=True, slots=True)
class Replicated(Sync):
    """Replicates the rows that are read most.

    Attributes:
        rows: how many every worker replicates, >= 1; with several tables, rows of any that take the room of this number
            of rows of the first.
    """

    name: ClassVar[str] = "replicated"
    rows: int

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise InvalidArgument(f"replicated rows are {self.rows}, there must be at least 1 (--sync replicated:ROWS)")

    @property
    def pinned_rows(self) -> int:
        """The replicated rows, which leave no cache."""
        return self.rows
