"""Planning where rows are pushed ahead, while links are idle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from esd.dispatcher.core.feedback import Feedback
from esd.dispatcher.core.sync.flush_ahead import LOOKAHEAD, FlushAhead
from esd.dispatcher.core.sync.way import SyncContext, SyncPlanning
from esd.services.domain.batches import SampleBatch
from esd.services.domain.jobs import JobSpec

if TYPE_CHECKING:
    from esd.dispatcher.core.decision import Decision
    from esd.native.engine import Engine, Way


class ProactivePlanning(SyncPlanning):
    """Follows the measurements of workers, and announces the reads of later batches to the engine."""

    lookahead = LOOKAHEAD

    def __init__(self, job: JobSpec, context: SyncContext) -> None:
        """Begins with the registered links."""
        super().__init__(job, context)
        self._ahead = FlushAhead(context.bandwidths, max(table.row_transfer_bytes for table in job.tables))
        self.learner = {"flush_ahead": self._ahead}

    def way(self) -> Way:
        """Returns the engine's part."""
        return self.engines.Proactive()

    def announce(self, engine: Engine, lookahead_batches: Sequence[SampleBatch]) -> None:
        """Announces the reads of later batches."""
        self._ahead.announce(engine, lookahead_batches)

    def push_limits(self) -> list[int]:
        """Returns how many rows fit the time in which each link is idle, [n]."""
        return self._ahead.limits()

    def observe(self, feedback: Feedback) -> None:
        """Records the times and speeds of an iteration."""
        self._ahead.observe(feedback)

    def learn(self, decision: Decision) -> None:
        """Records the planned bytes of an iteration."""
        self._ahead.learn(decision)
