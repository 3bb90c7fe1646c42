"""Pushing ahead (FRUGAL P2F): on demand, and before that while links are idle, what is read next first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from esd.services.domain.sync.way import Sync


@dataclass(frozen=True, slots=True)
class Proactive(Sync):
    """Pushes what others need, before they need it."""

    name: ClassVar[str] = "proactive"
