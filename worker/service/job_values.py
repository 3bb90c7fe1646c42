"""The labels and dense features that the plans of one job refer to, out of the site's values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from esd.services.domain.columns import SampleColumns, arrangement
from esd.services.domain.errors import FailedPrecondition, InvalidArgument
from esd.services.domain.jobs import JobSpec
from esd.services.domain.plans import IterationPlan
from esd.services.domain.references import keys_of, rows_of
from esd.services.runtime.site_values import SiteValues

_NO_REFERENCES = np.empty(0, np.uint64)


class JobValues:
    """Completes the plans of a job whose samples stay at their sites.

    Args:
        values: of the worker's site.
        job: the job.

    Raises:
        InvalidArgument: the values have other columns than the job, by name, or other rules.
        FailedPrecondition: they have another number of dense features.
    """

    def __init__(self, values: SiteValues, job: JobSpec) -> None:
        self._values = values
        self._job = job
        try:
            moves = arrangement(values.columns, SampleColumns((), job.labels, job.dense_names, job.rules))
        except InvalidArgument as error:
            raise InvalidArgument(f"{values} does not fit job {job.name}: {error}") from None
        self._labels, self._dense = moves.labels, moves.dense
        if len(values.columns.dense) != job.dense_features:
            raise FailedPrecondition(
                f"{values} has {len(values.columns.dense)} dense features, job {job.name} has {job.dense_features}"
            )

    def completed(self, plan: IterationPlan) -> IterationPlan:
        """Returns a plan with the labels and dense features of its samples.

        Raises:
            FailedPrecondition: a sample refers to other values, or to a row that they do not have.
            InvalidArgument: the job's loss does not accept a label.
        """
        rows = self._rows(_NO_REFERENCES if plan.references is None else plan.references, plan)
        labels, dense = self._values.pick(rows)
        if self._labels is not None:
            labels = np.ascontiguousarray(labels[:, self._labels])
        if self._dense is not None:
            dense = np.ascontiguousarray(dense[:, self._dense])
        self._job.model.loss.check_labels(labels, self._job.labels, int(rows[0]) if len(rows) else 0)
        return replace(plan, labels=labels, dense=dense)

    def _rows(self, references: NDArray[np.uint64], plan: IterationPlan) -> NDArray[np.int64]:
        if len(references) != len(plan.positions):
            raise FailedPrecondition(
                f"iteration {plan.iteration} refers to {len(references)} of {len(plan.positions)} samples"
            )
        other = keys_of(references) != self._values.key
        if other.any():
            key = int(keys_of(references)[np.argmax(other)])
            raise FailedPrecondition(
                f"iteration {plan.iteration} refers to values with the key {key:06x}, and the worker has "
                f"{self._values}: submitter and workers of a site need the same (--site-values, ESD_WORKER_SITE_VALUES)"
            )
        rows = rows_of(references)
        if len(rows) and int(rows.max()) >= len(self._values):
            raise FailedPrecondition(
                f"iteration {plan.iteration} refers to row {int(rows.max())} of {self._values}, whose rows are "
                f"0..{len(self._values) - 1}"
            )
        return rows


def values_of_job(values: SiteValues | None, job: JobSpec) -> JobValues | None:
    """Returns the values by which the plans of a job are completed; None if they are complete.

    Raises:
        FailedPrecondition: they are not, and the worker has no values.
        InvalidArgument: its values do not fit the job.
    """
    if not job.by_reference:
        return None
    if values is None:
        raise FailedPrecondition(
            f"labels and dense features of job {job.name} stay at their sites, and this worker has none: set its "
            "ESD_WORKER_SITE_VALUES (--site-values of a local run)"
        )
    return JobValues(values, job)
