"""Pushing ahead (FRUGAL P2F): on demand, and before that while links are idle, the rows that are read next first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from esd.services.domain.sync.way import Sync


@dataclass(frozen=True, slots=True)
class Proactive(Sync):
    """Pushes the rows that other workers need, before they need them."""

    name: ClassVar[str] = "proactive"
