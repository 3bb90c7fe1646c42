"""What the workers report of an iteration, put together as feedback for the planner."""

from __future__ import annotations

import numpy as np

from dispatcher.core.feedback import Feedback
from services.domain.reports import IterationReport


class ReportedFeedback:
    """Collects the reports of the iterations that no decision has used yet.

    The time of a worker is what it moved, at the speed of its link, plus computation and row updates. Time in which a
    worker waits for rows that others have yet to push, or for their dense gradients, is none of its own. The necessary
    time of an iteration is the longest computation and the shortest all-reduce, that of the worker for which the others
    waited.

    Args:
        workers: n, the slots of the job.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._bandwidths = np.zeros(workers)
        self._reports: dict[int, dict[int, IterationReport]] = {}

    def set_link(self, slot: int, bandwidth: float) -> None:
        """Takes the registered speed of a worker's link, in bytes per second; it holds until the link is measured."""
        self._bandwidths[slot] = bandwidth

    def add(self, slot: int, report: IterationReport) -> None:
        """Takes a worker's report; each worker reports an iteration once."""
        self._reports.setdefault(report.iteration, {})[slot] = report

    def take(self, iteration: int) -> Feedback:
        """Returns the feedback of an iteration that all workers have reported. Take iterations in order, each once."""
        reports = self._reports.pop(iteration)
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
