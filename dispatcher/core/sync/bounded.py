"""Planning where copies may be stale, within bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from esd.dispatcher.core.sync.way import SyncPlanning
from esd.services.domain.sync import Bounded

if TYPE_CHECKING:
    from esd.native.engine import Way


class BoundedPlanning(SyncPlanning):
    """Workers keep updates to themselves. The engine counts how stale the reads of an iteration are."""

    def way(self) -> Way:
        """Returns the engine's part."""
        sync = cast(Bounded, self.job.sync)
        additive = [self.job.steps_add_up(table) for table in self.job.tables]
        return self.engines.Bounded(pull=sync.pull, push=sync.push, additive=additive)
