"""What the workers report of an iteration, put together as feedback for the planner."""

from __future__ import annotations

import numpy as np

from esd.dispatcher.core.feedback import Feedback
from esd.dispatcher.core.learned import read_arrays, save_arrays
from esd.services.domain.reports import IterationReport


class ReportedFeedback:
    """Collects what is reported of one epoch's iterations until a decision uses it, `window` iterations later.

    A checkpoint takes the feedback of the last `window` iterations before it, which decisions behind it will use.

    The time of a worker is what it moved, at the speed of its link, plus computation and row updates. Time in which a
    worker waits for rows that others have yet to push, or for their dense gradients, is none of its own. The necessary
    time of an iteration is the longest computation and the shortest all-reduce, that of the worker for which the others
    waited.

    Args:
        workers: n, the slots of the job.
        window: how many iterations decisions are ahead of the feedback that they use.
        first: the epoch's first iteration.
    """

    def __init__(self, workers: int, window: int, first: int = 0) -> None:
        self._workers = workers
        self._window = window
        self._bandwidths = np.zeros(workers)
        self._reports: dict[int, dict[int, IterationReport]] = {}
        self._feedback: dict[int, Feedback] = {}  # by iteration; that of a window is kept after its use
        self._complete = first  # iterations before this one are put together
        self._unused = first  # the first iteration whose feedback no decision has used

    def set_link(self, slot: int, bandwidth: float) -> None:
        """Takes the registered speed of a worker's link, in bytes per second; it holds until the link is measured."""
        self._bandwidths[slot] = bandwidth

    def add(self, slot: int, report: IterationReport) -> None:
        """Takes a worker's report; each worker reports an iteration once."""
        self._reports.setdefault(report.iteration, {})[slot] = report

    def take_through(self, iteration: int) -> list[Feedback]:
        """Returns the feedback up to an iteration that all workers have reported, less what was taken before."""
        self._put_together(iteration + 1)
        taken = [self._feedback[each] for each in range(self._unused, iteration + 1)]
        self._unused = max(self._unused, iteration + 1)
        for old in [each for each in self._feedback if each < self._unused - self._window]:
            del self._feedback[old]
        return taken

    def save(self, iteration: int) -> bytes:
        """Returns what decisions from an iteration on will use of those before it, which all workers have reported."""
        self._put_together(iteration)
        kept = sorted(each for each in self._feedback if iteration - self._window <= each < iteration)
        by_worker = (len(kept), self._workers)
        return save_arrays(
            {
                "iterations": np.array(kept, np.int64),
                "seconds": np.reshape([self._feedback[each].seconds for each in kept], by_worker),
                "measured": np.reshape([self._feedback[each].bandwidths for each in kept], by_worker),
                "necessary": np.array([self._feedback[each].necessary_seconds for each in kept], np.float64),
                "bandwidths": self._bandwidths,
            }
        )

    def load(self, saved: bytes) -> None:
        """Goes on with what `save` returned before the epoch's first iteration, of the same workers."""
        arrays = read_arrays(saved)
        self._bandwidths = arrays["bandwidths"]
        columns = (arrays[name] for name in ("iterations", "seconds", "measured", "necessary"))
        for iteration, seconds, measured, necessary in zip(*columns, strict=True):
            self._feedback[int(iteration)] = Feedback(seconds, measured, float(necessary))
        self._unused = min(self._feedback, default=self._unused)

    def _put_together(self, end: int) -> None:
        """Makes feedback of the reports before an iteration."""
        for iteration in range(self._complete, end):
            self._feedback[iteration] = self._feedback_of(self._reports.pop(iteration))
        self._complete = max(self._complete, end)

    def _feedback_of(self, reports: dict[int, IterationReport]) -> Feedback:
        measured = np.zeros(self._workers)
        seconds = np.zeros(self._workers)
        for slot, report in reports.items():
            measured[slot] = report.measured_bandwidth
            if report.measured_bandwidth:
                self._bandwidths[slot] = report.measured_bandwidth
            moved = report.transfers.bytes_pulled + report.transfers.bytes_pushed
            seconds[slot] = moved / self._bandwidths[slot] + report.phases.compute + report.phases.update
        phases = [report.phases for report in reports.values()]
        necessary = max(each.compute + each.update for each in phases) + min(each.all_reduce for each in phases)
        return Feedback(seconds, measured, necessary)
