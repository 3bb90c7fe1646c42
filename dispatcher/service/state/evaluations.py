"""The drivers' evaluations on held-out samples: stored with the job and its checkpoints, and shown in the metrics.

The dispatcher neither scores nor judges. It keeps evaluations for a restarted driver, which must know since when the
model has not improved, and for the page and Prometheus.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from esd.dispatcher.service.state import job_metrics
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.state import KEPT_EVALUATIONS, Evaluation


class Evaluations:
    """The latest evaluations of a job's model.

    Args:
        labels: the names of the job's labels.
        kept: the evaluations in the job's checkpoint.

    Attributes:
        latest: the latest evaluations, by iteration, at most KEPT_EVALUATIONS.
    """

    def __init__(self, labels: Sequence[str], kept: Sequence[Evaluation]) -> None:
        self._labels = labels
        self.latest: tuple[Evaluation, ...] = tuple(kept)
        self._show()

    def record(self, evaluations: Iterable[Evaluation], trained: int) -> None:
        """Adds evaluations. A new one replaces an earlier evaluation at the same iteration.

        Args:
            evaluations: the new evaluations, in any order.
            trained: the number of trained iterations, which no evaluation can exceed.

        Raises:
            InvalidArgument: the number of labels differs from the job's, or an iteration is not trained yet. No
                evaluation was added.
        """
        known = {each.iteration: each for each in self.latest}
        for each in evaluations:
            if len(each.labels) != len(self._labels):
                raise InvalidArgument(
                    f"the evaluation at iteration {each.iteration} is of {len(each.labels)} labels, the job has "
                    f"{len(self._labels)}"
                )
            if each.iteration > trained:
                raise InvalidArgument(f"an evaluation is at iteration {each.iteration}, {trained} are trained")
            known[each.iteration] = each
        self.latest = tuple(known[iteration] for iteration in sorted(known)[-KEPT_EVALUATIONS:])
        self._show()

    def _show(self) -> None:
        if self.latest:
            job_metrics.evaluated(self._labels, self.latest[-1])
