"""Write-through (FRUGAL-SYNC): every trained row is pushed, and stored before the next iteration trains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from esd.services.domain.sync.way import Sync


@dataclass(frozen=True, slots=True)
class WriteThrough(Sync):
    """Pushes everything, and waits for it."""

    name: ClassVar[str] = "write-through"
    awaits_storage: ClassVar[bool] = True
