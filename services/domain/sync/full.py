"""Full synchronisation (vanilla of Herald §3.1): every trained row is pushed while the next iteration trains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from esd.services.domain.sync.way import Sync


@dataclass(frozen=True, slots=True)
class Full(Sync):
    """Pushes everything."""

    name: ClassVar[str] = "full"
