"""What drivers have found out about held-out samples: kept with the job and its checkpoints, shown to whoever looks.

The dispatcher neither scores nor judges. It keeps this for a driver that is started again, which has to know since when
the model has not become better, and for the page and Prometheus.
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
        kept: those that the job's checkpoint has.

    Attributes:
        latest: by iteration, at most KEPT_EVALUATIONS.
    """

    def __init__(self, labels: Sequence[str], kept: Sequence[Evaluation]) -> None:
        self._labels = labels
        self.latest: tuple[Evaluation, ...] = tuple(kept)
        self._show()

    def record(self, evaluations: Iterable[Evaluation], trained: int) -> None:
        """Adds evaluations, each in the place of an earlier one at the same iteration.

        Args:
            evaluations: in any order.
            trained: how many iterations are trained, and so can have been judged.

        Raises:
            InvalidArgument: the labels are not the job's, or an iteration is not trained yet; nothing was added.
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
