"""Planning without caches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from esd.dispatcher.core.sync.way import SyncPlanning

if TYPE_CHECKING:
    from esd.native.engine import Way


class UncachedPlanning(SyncPlanning):
    """Every row is pulled before an iteration and pushed after it."""

    def way(self) -> Way:
        """Returns the engine's part."""
        return self.engines.Uncached()
