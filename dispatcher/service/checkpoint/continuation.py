"""A job that goes on from the last checkpoint of an earlier one: with new data, or at another learning rate."""

from __future__ import annotations

from dataclasses import replace

from esd.dispatcher.service.state.manifest import Manifest
from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.jobs import JobSpec, ModelSpec
from esd.services.wire.jobs import job_of_json

# What may be another one; of tables and model, what says how they are trained.
_FREE = {
    "batch_size",
    "dense_schedule",
    "first_iteration",
    "max_rows",
    "at_max_rows",
    "schedule",
    "seed",
    "stream",
}


def goes_on_from(job: JobSpec, before: Manifest) -> bool:
    """Tells whether a job that is to begin now goes on from this checkpoint of an earlier one.

    Raises:
        FailedPrecondition: it would, but it trains another model.
    """
    if not job.first_iteration or before.iteration != job.first_iteration:
        return False
    differing = set(before.differences(job))
    if not differing:
        return False  # it has begun there before
    earlier = job_of_json(before.job)
    if [table.without_rate() for table in earlier.tables] == [table.without_rate() for table in job.tables]:
        differing.discard("tables")
    if _shape(earlier.model) == _shape(job.model):
        differing.discard("model")
    if differing - _FREE:
        raise FailedPrecondition(
            f"table {job.table.name!r} holds checkpoint {before.iteration} of a job that differs in "
            f"{', '.join(sorted(differing - _FREE))}: data, batch size, learning rates, schedules, weight decay and "
            "clipping may change when another job goes on from it, and nothing else that makes the model"
        )
    return True


def continuation(job: JobSpec, stored: bytes) -> JobSpec:
    """Returns the job as one that goes on from what its table holds.

    A job that has gone on from it already, and was interrupted, goes on where it was.

    Args:
        job: as if it began anew.
        stored: the manifest of the last checkpoint; empty if there is none.

    Raises:
        FailedPrecondition: there is nothing to go on from.
    """
    manifest = Manifest.decode(stored) if stored else None
    if manifest is None or not manifest.iteration:
        raise FailedPrecondition(
            f"table {job.table.name!r} holds no checkpoint to go on from (--continue-from): the run that trained it "
            "took none, or the store has not kept it"
        )
    begun = replace(job, first_iteration=int(manifest.job.get("first_iteration", 0)))
    if begun.first_iteration and not manifest.differences(begun):
        return begun
    return replace(job, first_iteration=manifest.iteration)


def _shape(model: ModelSpec) -> ModelSpec:
    """Returns a model without what says how fast it learns."""
    optimizer = replace(model.dense_optimizer, learning_rate=1.0)
    return replace(model, dense_optimizer=optimizer, weight_decay=0.0, clip_norm=0.0)
