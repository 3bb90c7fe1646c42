"""Planning for the ways that push every trained row; whether workers wait for that is no part of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from esd.dispatcher.core.sync.way import SyncPlanning

if TYPE_CHECKING:
    from esd.native.engine import Way


class PushAllPlanning(SyncPlanning):
    """Every trained row is pushed in the next iteration."""

    def way(self) -> Way:
        """Returns the engine's part."""
        return self.engines.PushAll()
