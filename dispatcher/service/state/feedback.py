"""The workers' reports of an iteration, combined into feedback for the planner."""

from __future__ import annotations

import numpy as np

from esd.dispatcher.core.feedback import Feedback
from esd.dispatcher.core.learned import read_arrays, save_arrays
from esd.services.domain.reports import IterationReport


class ReportedFeedback:
    """Keeps the measurements of one epoch's iterations until a decision uses them, `window` iterations later.

    A checkpoint contains the feedback of the last `window` iterations before it, which decisions after it will use.

    The time of a worker is the transfer time of its rows and plans at the speed of its link, plus computation and row
    updates. It excludes waits for other workers' pushes and dense gradients, since those measure the other workers.
    The time of the dense sums on its link, in the longer direction, is apart: it depends on no samples. The
    necessary time of an iteration is its longest computation with row updates plus its shortest all-reduce: the
    shortest belongs to the worker for which the others waited.

    Args:
        workers: n, the slots of the job.
        window: the distance in iterations between a decision and the latest feedback that it uses.
        first: the epoch's first iteration.
    """

    def __init__(self, workers: int, window: int, first: int = 0) -> None:
        self._workers = workers
        self._window = window
        self._bandwidths = np.zeros(workers)
        self._reports: dict[int, dict[int, IterationReport]] = {}
        self._feedback: dict[int, Feedback] = {}  # by iteration; kept for a window after its use, for `save`
        self._complete = first  # the first iteration whose reports are not combined
        self._unused = first  # the first iteration whose feedback no decision has used

    def set_link(self, slot: int, bandwidth: float) -> None:
        """Sets the speed of a worker's link, in bytes per second, until the first measurement replaces it."""
        self._bandwidths[slot] = bandwidth

    def add(self, slot: int, report: IterationReport) -> None:
        """Adds a worker's report; each worker reports an iteration once."""
        self._reports.setdefault(report.iteration, {})[slot] = report

    def take_through(self, iteration: int) -> list[Feedback]:
        """Returns the feedback up to an iteration that all workers have reported, without feedback returned before."""
        self._combine(iteration + 1)
        taken = [self._feedback[each] for each in range(self._unused, iteration + 1)]
        self._unused = max(self._unused, iteration + 1)
        for old in [each for each in self._feedback if each < self._unused - self._window]:
            del self._feedback[old]
        return taken

    def save(self, iteration: int) -> bytes:
        """Encodes the feedback of earlier iterations that decisions from `iteration` on will use.

        All workers must have reported the iterations before it.
        """
        self._combine(iteration)
        kept = sorted(each for each in self._feedback if iteration - self._window <= each < iteration)
        by_worker = (len(kept), self._workers)
        return save_arrays(
            {
                "iterations": np.array(kept, np.int64),
                "seconds": np.reshape([self._feedback[each].seconds for each in kept], by_worker),
                "measured": np.reshape([self._feedback[each].bandwidths for each in kept], by_worker),
                "dense": np.reshape([self._feedback[each].dense_seconds for each in kept], by_worker),
                "necessary": np.array([self._feedback[each].necessary_seconds for each in kept], np.float64),
                "bandwidths": self._bandwidths,
            }
        )

    def load(self, saved: bytes) -> None:
        """Restores the result of `save` before the epoch's first iteration; the workers must be the same."""
        arrays = read_arrays(saved)
        self._bandwidths = arrays["bandwidths"]
        columns = (arrays[name] for name in ("iterations", "seconds", "measured", "necessary", "dense"))
        for iteration, seconds, measured, necessary, dense in zip(*columns, strict=True):
            self._feedback[int(iteration)] = Feedback(seconds, measured, float(necessary), dense)
        self._unused = min(self._feedback, default=self._unused)

    def _combine(self, end: int) -> None:
        """Combines the reports of the iterations before `end` into feedback."""
        for iteration in range(self._complete, end):
            self._feedback[iteration] = self._feedback_of(self._reports.pop(iteration))
        self._complete = max(self._complete, end)

    def _feedback_of(self, reports: dict[int, IterationReport]) -> Feedback:
        measured, seconds, dense = np.zeros((3, self._workers))
        for slot, report in reports.items():
            measured[slot] = report.measured_bandwidth
            if report.measured_bandwidth:
                self._bandwidths[slot] = report.measured_bandwidth
            carried, bandwidth = report.transfers, self._bandwidths[slot]
            plans = carried.link_plans_up + carried.link_plans_down
            moved = carried.bytes_pulled + carried.bytes_pushed + plans
            seconds[slot] = moved / bandwidth + report.phases.compute + report.phases.update
            dense[slot] = max(carried.link_dense_up, carried.link_dense_down) / bandwidth
        phases = [report.phases for report in reports.values()]
        necessary = max(each.compute + each.update for each in phases) + min(each.all_reduce for each in phases)
        return Feedback(seconds, measured, necessary, dense)
