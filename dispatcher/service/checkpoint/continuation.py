"""A job that continues from the last checkpoint of an earlier job: with new data, or at another learning rate."""

from __future__ import annotations

from dataclasses import replace

from esd.dispatcher.service.state.manifest import Manifest
from esd.services.domain.columns import changed_rules
from esd.services.domain.dense_sums import AUTO
from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.jobs import JobSpec, ModelSpec
from esd.services.domain.stream_parts import StreamPart, StreamPlace
from esd.services.wire.jobs import job_of_json

# Fields in which a continuing job may differ. Of its tables and its model, only learning rates and the like may differ.
_FREE = {
    "admit_afters",
    "batch_size",
    "by_reference",
    "continues_stream",
    "dense_schedule",
    "first_iteration",
    "max_rows",
    "at_max_rows",
    "row_ttls",
    "rules",
    "schedule",
    "seed",
    "stream",
    "submitters",
}


def goes_on_from(job: JobSpec, before: Manifest) -> bool:
    """Returns whether a job that has not begun yet continues from this checkpoint of an earlier job.

    Raises:
        FailedPrecondition: the job continues from the checkpoint, but trains another model.
    """
    if not job.first_iteration or before.iteration != job.first_iteration:
        return False
    differing = set(before.differences(job))
    if not differing:
        return False  # the checkpoint is the job's own: it has begun before, and resumes
    earlier = job_of_json(before.job)
    if [table.without_rate() for table in earlier.tables] == [table.without_rate() for table in job.tables]:
        differing.discard("tables")
    if _shape(earlier.model) == _shape(job.model):
        differing.discard("model")
    _check_ttls(earlier, job)
    _check_admission(earlier, job)
    if differing - _FREE:
        raise FailedPrecondition(
            f"table {job.table.name!r} holds checkpoint {before.iteration} of a job that differs in "
            f"{', '.join(sorted(differing - _FREE))}: data, batch size, learning rates, schedules, weight decay and "
            "clipping may change when another job continues from it, and nothing else that determines the model"
        )
    return True


def continuation(job: JobSpec, stored: bytes, *, continues_stream: bool = False) -> JobSpec:
    """Returns the job with the first iteration at which it continues from the checkpoint of its table.

    If the checkpoint belongs to the continuing job itself, which was interrupted, the first iteration stays where that
    job began.

    Args:
        job: the job, as if it began from nothing.
        stored: the manifest of the last checkpoint; empty if there is none.
        continues_stream: as of the job that continues.

    Raises:
        FailedPrecondition: the table holds no checkpoint with a trained iteration.
    """
    manifest = Manifest.decode(stored) if stored else None
    if manifest is None or not manifest.iteration:
        raise FailedPrecondition(
            f"table {job.table.name!r} holds no checkpoint to continue from (--continue-from): the run that trained it "
            "took none, or the store has not kept it"
        )
    continued = replace(job, first_iteration=manifest.iteration, continues_stream=continues_stream)
    if first := int(manifest.job.get("first_iteration", 0)):
        begun = replace(continued, first_iteration=first)
        if not manifest.differences(begun):
            return begun
    return continued


def first_place(job: JobSpec, before: Manifest | None) -> StreamPlace | None:
    """Returns the place at which the stream of a job begins that continues another one; None: at its beginning.

    Args:
        job: the job.
        before: the checkpoint from which it continues; None: it begins with a new table.

    Raises:
        FailedPrecondition: the stream goes on where the earlier one ended, and the checkpoint does not say where.
    """
    if before is None or not job.continues_stream:
        return None
    parts = () if before.place is None else before.place.parts
    checkpoint = f"checkpoint {before.iteration} of table {job.table.name!r}"
    if not all(part.source for part in parts) or not parts:
        raise FailedPrecondition(
            f"{checkpoint} does not say where its samples ended in their source, so no stream goes on there "
            "(--continue-stream): they came without places"
        )
    if len(parts) != job.submitters:
        raise FailedPrecondition(
            f"{checkpoint} is of a stream of {len(parts)} parts, and the stream that would go on there "
            f"(--continue-stream) has {job.submitters}: give the same number of --submitters"
        )
    sources = [part.source for part in parts]
    return StreamPlace(tuple(StreamPart(share, 0, source) for share, source in zip(job.shares, sources, strict=True)))


def with_earlier_sum(job: JobSpec, before: Manifest | None) -> JobSpec:
    """Returns the job with the way to sum dense gradients of the checkpoint that it continues, if it leaves it open.

    So the choice by links is made once, and a model that was trained with gradients of low rank goes on with them.
    """
    if before is None or job.dense_sum != AUTO:
        return job
    return replace(job, dense_sum=job_of_json(before.job).dense_sum)


def stream_of(stored: bytes) -> str:
    """Returns the name of the samples that the job of a manifest has trained; empty: it has none."""
    return str(Manifest.decode(stored).job.get("stream", "")) if stored else ""


def rules_changed(job: JobSpec, stored: bytes) -> list[str]:
    """Returns a sentence for each rule of labels, weights and absent values that another job continues by.

    Args:
        job: the job that continues.
        stored: the manifest of the checkpoint that it continues.
    """
    earlier = job_of_json(Manifest.decode(stored).job)
    return changed_rules(earlier.rules, job.rules) if earlier.rules else []


def _check_ttls(earlier: JobSpec, job: JobSpec) -> None:
    """Raises FailedPrecondition if rows of a table live shorter than before: the first plan would forget very many."""
    for table, before, now in zip(job.tables, earlier.row_ttls, job.row_ttls, strict=False):
        if 0 < now < before:
            raise FailedPrecondition(
                f"rows of table {table.name!r} live {now} iterations without a training (--row-ttl), and {before} in "
                f"the run that is continued: give at least {before}, or 0"
            )


def _check_admission(earlier: JobSpec, job: JobSpec) -> None:
    """Raises FailedPrecondition if the ids that are admitted so far would not be: their rows would be read no more."""
    if job.admit_afters in ((), earlier.admit_afters):
        return
    before = " and ".join(map(str, dict.fromkeys(earlier.admit_afters))) or "1"
    raise FailedPrecondition(
        f"the run that is continued admits ids in iteration {before} (--admit-after, or admit-after of a table), and "
        "this one would in another, for which nothing has counted: give the same, or 1 for all tables"
    )


def _shape(model: ModelSpec) -> ModelSpec:
    """Returns a model with fixed learning rate, weight decay and clipping, for comparing all other fields."""
    optimizer = replace(model.dense_optimizer, learning_rate=1.0)
    return replace(model, dense_optimizer=optimizer, weight_decay=0.0, clip_norm=0.0)
