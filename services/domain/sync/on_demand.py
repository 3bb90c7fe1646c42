"""On demand (ESD §4): a row is pushed when another worker needs it, or when it leaves a cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from esd.services.domain.sync.way import Sync


@dataclass(frozen=True, slots=True)
class OnDemand(Sync):
    """Pushes the rows that other workers need.

    Attributes:
        direct: whether a row that one other worker alone needs goes straight to it.
    """

    name: ClassVar[str] = "on-demand"
    direct: bool = False

    @property
    def delivers(self) -> bool:
        """Whether rows go straight to workers."""
        return self.direct


ON_DEMAND = OnDemand()
