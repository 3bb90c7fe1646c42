"""Workers that hold up an iteration much longer than usual: they are logged and counted, without any other effect."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from statistics import median

from esd.dispatcher.service.state import job_metrics
from esd.dispatcher.service.state.worker_record import WorkerRecord
from esd.services.domain.reports import WorkerPhase

_RECENT = 101  # iterations that the median covers
_FEWEST = 5  # iterations before the first deadline: fewer give no usable median
_SHORTEST_SECONDS = 1.0  # the shortest deadline, however fast the iterations are

_log = logging.getLogger(__name__)


class Stragglers:
    """The deadline of the oldest iteration that not all workers have confirmed, and the workers that miss it.

    Args:
        factor: the deadline, as a multiple of the median time of the latest iterations.
        knob: the name of the setting for `factor`, for messages.

    Attributes:
        iteration: the oldest iteration that not all workers have confirmed.
    """

    def __init__(self, factor: float, knob: str) -> None:
        self._factor = factor
        self._knob = knob
        self._durations: deque[float] = deque(maxlen=_RECENT)
        self._since: float | None = None  # when the iteration could begin; None while it is not planned
        self.iteration = 0

    @property
    def deadline(self) -> float | None:
        """The seconds that an iteration may take; None while too few iterations were measured."""
        if len(self._durations) < _FEWEST:
            return None
        return max(_SHORTEST_SECONDS, self._factor * median(self._durations))

    def begin_epoch(self, iteration: int) -> None:
        """Starts at the first iteration of an epoch; the measured durations stay."""
        self.iteration = iteration
        self._since = None

    def planned(self, iteration: int, now: float) -> None:
        """Records that an iteration is published."""
        if iteration == self.iteration:
            self._since = now

    def confirmed(self, iterations: int, planned: int, now: float) -> None:
        """Records that all workers have confirmed `iterations` of the `planned` iterations."""
        if self._since is not None:
            self._durations.append(now - self._since)
        self.iteration = iterations
        self._since = now if planned > iterations else None

    def late(self, workers: Iterable[WorkerRecord], now: float) -> list[WorkerRecord]:
        """Returns the workers that the oldest iteration waits for, once it is over its deadline."""
        deadline = self.deadline
        if deadline is None or self._since is None or now - self._since <= deadline:
            return []
        unconfirmed = [worker for worker in workers if worker.confirmed <= self.iteration]
        busy = [worker for worker in unconfirmed if worker.phase in (WorkerPhase.PUSH, WorkerPhase.COMPUTE)]
        # A worker in a pull may only wait for rows that a busy worker has yet to push, so busy workers come first.
        return busy or [worker for worker in unconfirmed if worker.phase is WorkerPhase.PULL]

    def report(self, workers: Iterable[WorkerRecord], now: float) -> None:
        """Counts and logs the workers that are late, each once per iteration."""
        for worker in self.late(workers, now):
            if worker.late_in < self.iteration:
                worker.late_in = self.iteration
                worker.late += 1
                job_metrics.late(worker.slot)
                _log.warning(
                    "%s holds up iteration %d in phase %s: it takes longer than %.1f s (the limit is %s)",
                    worker, self.iteration, worker.phase.value, self.deadline, self._knob,
                )  # fmt: skip
