"""The part of a way to synchronise in planning: its engine class, its measurements and its figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from esd.dispatcher.core.cost_model import RowSizes
from esd.dispatcher.core.feedback import Feedback
from esd.dispatcher.core.learned import Learner
from esd.native.engine import Engine, Way
from esd.native.engines import EngineModule, engine_of
from esd.services.domain.batches import SampleBatch
from esd.services.domain.jobs import JobSpec
from esd.services.domain.worker_set import WorkerSet

if TYPE_CHECKING:
    from esd.dispatcher.core.decision import Decision
    from esd.native.engine import IterationColumns


@dataclass(frozen=True, slots=True)
class SyncContext:
    """The workers and rows that a planner plans for.

    Attributes:
        bandwidths: bytes per second of each worker's link, [n].
        cache_rows: rows of the first table's size that each cache holds, [n].
        members: the workers that train.
        sizes: of the tables' rows.
    """

    bandwidths: Sequence[float]
    cache_rows: Sequence[int]
    members: WorkerSet
    sizes: RowSizes


class SyncPlanning:
    """One way to synchronise, at work. A subclass overrides the methods in which its way differs.

    Attributes:
        lookahead: the number of batches that it looks at beyond the one to plan.
        learner: its learner from measurements, by the name of the learner in checkpoints; none by default.
    """

    lookahead = 0

    def __init__(self, job: JobSpec, context: SyncContext) -> None:
        """Begins with nothing known. Raises InvalidArgument when the way does not fit the caches."""
        self.job = job
        self.context = context
        self.learner: dict[str, Learner] = {}

    @property
    def engines(self) -> EngineModule:
        """The module with the engine of as many workers as the job has."""
        return engine_of(self.job.workers)

    def way(self) -> Way:
        """Returns the engine's part, with its options."""
        raise NotImplementedError

    def announce(self, engine: Engine, lookahead_batches: Sequence[SampleBatch]) -> None:
        """Announces the reads of later batches to the engine, before the next batch is prepared."""

    def push_limits(self) -> list[int] | None:
        """Returns how many rows each worker may push before they are needed, [n]; None: none."""
        return None

    def observe(self, feedback: Feedback) -> None:
        """Records the measurements of an iteration."""

    def learn(self, decision: Decision) -> None:
        """Records the planned bytes of an iteration."""

    def reduced_bytes(self, columns: IterationColumns) -> NDArray[np.int64]:  # noqa: ARG002
        """Returns the bytes that each worker sends to sum gradients with all others, int64 [n]."""
        return np.zeros(self.job.workers, np.int64)

    def direct(self, columns: IterationColumns) -> tuple[NDArray[np.int64], NDArray[np.int64]]:  # noqa: ARG002
        """Returns the rows, and their bytes, that each worker sends straight to another, int64 [n] each."""
        none = np.zeros(self.job.workers, np.int64)
        return none, none
