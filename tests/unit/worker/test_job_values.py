"""Plans that refer to the values of a site are completed by them, or refused by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from esd.services.domain.columns import SampleColumns
from esd.services.domain.errors import FailedPrecondition, InvalidArgument
from esd.services.domain.jobs import JobSpec
from esd.services.domain.plans import IterationPlan
from esd.services.domain.references import references_to
from esd.services.runtime.site_values import SiteValues, SiteValuesWriter
from esd.worker.service.job_values import values_of_job

COLUMNS = SampleColumns((), ("bought", "clicked"), ("price", "age"))
LABELS = np.array([[0, 1], [1, 1], [1, 0]], np.float32)
DENSE = np.array([[0.5, 1], [1.5, 2], [2.5, 3]], np.float32)


@pytest.fixture
def values(tmp_path: Path) -> SiteValues:
    with SiteValuesWriter(tmp_path / "north", "north", COLUMNS) as writer:
        writer.add(LABELS[:2], DENSE[:2])
        writer.add(LABELS[2:], DENSE[2:])
        assert writer.finish() == 3
    return SiteValues(tmp_path / "north")


@pytest.fixture
def job(make_job) -> JobSpec:
    """With the columns of the values in another order."""
    made: JobSpec = make_job(dense_features=2)
    return replace(
        made, labels=("clicked", "bought"), dense_names=("age", "price"), sites=("north",), by_reference=True
    )


def referring(plans, references: np.ndarray) -> IterationPlan:
    nothing = np.empty((len(references), 0), np.float32)
    train = [(row, row, 0, 1) for row in range(len(references))]
    made: IterationPlan = plans.plan(4, train=train, labels=nothing, dense=nothing, references=references)
    return made


def test_plans_get_the_columns_of_the_job_by_their_names(values: SiteValues, job: JobSpec, plans) -> None:
    of_job = values_of_job(values, job)
    assert of_job is not None
    plan = of_job.completed(referring(plans, references_to(values.key, np.array([2, 0]))))
    assert plan.labels.tolist() == [[0, 1], [1, 0]]
    assert plan.dense.tolist() == [[3, 2.5], [1, 0.5]]
    assert plan.labels.flags.c_contiguous
    empty = of_job.completed(replace(plans.plan(5), references=None))  # of a worker without samples
    assert (empty.labels.shape, empty.dense.shape) == ((0, 2), (0, 2))


def test_other_values_and_other_rows_are_refused_by_name(values: SiteValues, job: JobSpec, plans) -> None:
    of_job = values_of_job(values, job)
    assert of_job is not None
    with pytest.raises(FailedPrecondition, match=r"iteration 4 refers to row 3 of .*north.*, whose rows are 0..2"):
        of_job.completed(referring(plans, references_to(values.key, np.array([0, 3]))))
    other = values.key ^ 1
    with pytest.raises(
        FailedPrecondition, match=f"refers to values with the key {other:06x}, and the worker has .*north"
    ):
        of_job.completed(referring(plans, references_to(other, np.array([0]))))
    with pytest.raises(FailedPrecondition, match="iteration 4 refers to 0 of 1 samples"):
        of_job.completed(replace(referring(plans, references_to(values.key, np.array([0]))), references=None))


def test_a_label_that_the_loss_does_not_take_is_refused(job: JobSpec, plans, tmp_path: Path) -> None:
    with SiteValuesWriter(tmp_path / "other", "north", COLUMNS) as writer:
        writer.add(LABELS + np.float32(0.5), DENSE)
        writer.finish()
    values = SiteValues(tmp_path / "other")
    of_job = values_of_job(values, job)
    assert of_job is not None
    with pytest.raises(InvalidArgument, match=r"label 'clicked' of sample 1 is 1.5, the loss bce \(--loss\)"):
        of_job.completed(referring(plans, references_to(values.key, np.array([1]))))


def test_values_that_do_not_fit_the_job_are_refused_by_name(values: SiteValues, job: JobSpec) -> None:
    assert values_of_job(values, replace(job, by_reference=False)) is None
    with pytest.raises(FailedPrecondition, match="this worker has none: set its ESD_WORKER_SITE_VALUES"):
        values_of_job(None, job)
    with pytest.raises(InvalidArgument, match=r"north .* does not fit job job: the labels of the samples lack 'sold'"):
        values_of_job(values, replace(job, labels=("clicked", "sold")))
    with pytest.raises(FailedPrecondition, match="has 2 dense features, job job has 3"):
        values_of_job(values, replace(job, dense_features=3, dense_names=()))
    with pytest.raises(InvalidArgument, match="stay at sites, and the workers have none: give --sites"):
        replace(job, sites=())
