"""Planning without caches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from esd.dispatcher.core.sync.way import SyncPlanning
from esd.native.engines import engine_of

if TYPE_CHECKING:
    from esd.native.engine import Way


class UncachedPlanning(SyncPlanning):
    """Every row is pulled before an iteration and pushed after it."""

    def way(self) -> Way:
        """Returns the engine's part."""
        return engine_of(self.job.workers).Uncached()
