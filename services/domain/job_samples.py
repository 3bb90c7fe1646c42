"""Samples beside the job that takes them: their shape, labels and sites."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.jobs import JobSpec


def check_form(batch: SampleBatch, job: JobSpec) -> None:
    """Refuses samples of another shape than the job's.

    Raises:
        InvalidArgument: features, dense features or labels are others in number; or samples have references to labels
            and dense features, and the job takes these as they are, or the other way round.
    """
    if (batch.references is not None) != job.by_reference:
        lacks, stay = ("no references", "stay at their sites") if job.by_reference else ("references", "travel")
        raise InvalidArgument(
            f"the batch has {lacks} to labels and dense features, which {stay} in job {job.name} (--site-values)"
        )
    dense, labels = (0, 0) if job.by_reference else (job.dense_features, len(job.labels))
    batch.check_shape(job.features, dense, labels)


def check_contents(batch: SampleBatch, job: JobSpec, first: int) -> None:
    """Refuses samples of the right form that the job cannot train; `first` samples of the stream are before them.

    Raises:
        InvalidArgument: the job's loss does not accept a label, or a sample is of a site without workers.
    """
    if batch.references is None:  # else the worker sees the labels first
        job.model.loss.check_labels(batch.labels, job.labels, first)
    sites_of_samples(batch, job, first)


def sites_of_samples(batch: SampleBatch, job: JobSpec, first: int = 0) -> NDArray[np.int32] | None:
    """Returns the place of each sample's site among the sites of a job's workers, int32 [k]; None where none have one.

    Args:
        batch: the samples.
        job: the job.
        first: the number of samples of the stream before them, for errors.

    Raises:
        InvalidArgument: samples have sites and the job's workers have none, or the other way round; or a sample is of a
            site without workers.
    """
    sites = job.worker_sites
    if sites is None and batch.sites is None:
        return None
    if sites is None or batch.sites is None:
        have, lack = ("samples", "workers") if sites is None else ("workers", "samples")
        raise InvalidArgument(
            f"the {have} of job {job.name} have sites, and its {lack} have none: name a column as `site` in the "
            "schema and give --sites, or leave both out"
        )
    return sites.of_samples(batch.sites, first)
