"""No cache (the uncached systems of SCARS and FRUGAL): an iteration pulls every row that it uses, and pushes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from esd.services.domain.sync.way import Sync


@dataclass(frozen=True, slots=True)
class Uncached(Sync):
    """Pulls and pushes everything, so that no worker keeps a row from one iteration to the next."""

    name: ClassVar[str] = "none"
