"""From one epoch to the next: the workers come together, and all go back to the last checkpoint.

A job without checkpoints has one epoch, from the first iteration on; it begins in the same way.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import replace

from esd.dispatcher.core.planner import Planner
from esd.dispatcher.service.checkpoint.checkpoints import Checkpoints, RestoredCheckpoint
from esd.dispatcher.service.run.job import Job
from esd.dispatcher.service.state.epoch import Epoch, PlanLog
from esd.dispatcher.service.state.manifest import DENSE, Manifest
from esd.services.domain.errors import FailedPrecondition, StaleEpoch
from esd.services.domain.jobs import JobSpec, equal_workloads, scale_workloads
from esd.services.domain.reports import Registration
from esd.services.domain.worker_set import WorkerSet
from esd.services.runtime.tasks import run_in
from esd.services.wire.plans import encode_plan_message

_log = logging.getLogger(__name__)


async def next_epoch(job: Job, thread: Executor) -> tuple[Epoch, Planner]:
    """Waits for the workers, takes everyone back to the last checkpoint if there are checkpoints, and begins an epoch.

    Args:
        job: the job.
        thread: where the planner is made.

    Raises:
        FailedPrecondition: workers are missing for too long; epoch after epoch ends without progress; a
            checkpoint is damaged; a parameter server cannot go back.
        StaleEpoch: the workers have changed meanwhile; try again.
        Unavailable: a parameter server is away for too long.
    """
    if job.checkpoints is None:
        return await _only_epoch(job, thread)
    await job.checkpoints.abandon()
    await _assemble_workers(job)
    checkpoint = await job.checkpoints.restore()
    members = job.workers.waiting
    if not members:
        raise StaleEpoch("all workers were lost while the epoch began")
    registrations = _registrations(job, checkpoint.manifest)
    planner = await run_in(thread, _planner_from, checkpoint, job.spec, registrations, members)
    if job.workers.waiting != members:
        raise StaleEpoch("a worker was lost or restarted while the epoch began")
    first = checkpoint.manifest.iteration
    reloads = _reloads(planner, checkpoint.manifest)
    epoch = Epoch(checkpoint.epoch, first, members, PlanLog(members, first), reloads)
    job.rewind_to(checkpoint, epoch)
    if planner.knows_workers:
        job.feedback.load(checkpoint.feedback)
    return epoch, planner


async def resume_finished(job: Job, checkpoints: Checkpoints) -> None:
    """Shows a job that was brought to its end before; at most its last commit is left to do.

    Raises:
        FailedPrecondition: the last checkpoint is damaged.
        Unavailable: a parameter server is away for too long.
    """
    await checkpoints.complete_end()
    trained = checkpoints.latest.iteration > job.spec.first_iteration
    job.resume_finished(checkpoints.latest, await checkpoints.read_part("progress") if trained else None)


async def _only_epoch(job: Job, thread: Executor) -> tuple[Epoch, Planner]:
    """Begins the epoch of a job without checkpoints, as soon as all its workers are registered."""
    await _wait_for_all(job, lambda: job.workers.complete)
    job.workers.settle_slots()
    everyone = WorkerSet.all_of(job.spec.workers)
    epoch = Epoch(0, 0, everyone, PlanLog(everyone))
    job.begin_epoch(epoch)
    registrations = [worker.registration for worker in job.workers]
    planner = await run_in(thread, _new_planner, job.spec, registrations)
    return epoch, planner


def _new_planner(job: JobSpec, registrations: Sequence[Registration]) -> Planner:
    bandwidths, cache_rows = [r.bandwidth for r in registrations], [r.cache_rows for r in registrations]
    return Planner(job, bandwidths, cache_rows, worker_limits=_limits(job, registrations))


def _limits(job: JobSpec, registrations: Sequence[Registration]) -> list[tuple[int, int]]:
    """Returns the least and the most samples that each worker takes."""
    return [(r.least_samples, r.most_samples or job.batch_size) for r in registrations]


async def _assemble_workers(job: Job) -> None:
    """Waits until all workers wait for an epoch.

    Those that were in an earlier epoch are waited for no longer than the rejoin window, if others are there.
    """
    workers, settings = job.workers, job.settings
    everyone = WorkerSet.all_of(job.spec.workers)
    if not workers.settled:
        await _wait_for_all(job, lambda: workers.waiting == everyone)
        workers.settle_slots()
        return
    rejoin_seconds = min(settings.rejoin_seconds, settings.join_seconds)
    if await job.lifecycle.wait_until(lambda: workers.waiting == everyone, seconds=rejoin_seconds):
        return
    if not await job.lifecycle.wait_until(
        lambda: len(workers.waiting) > 0, seconds=settings.join_seconds - rejoin_seconds
    ):
        raise FailedPrecondition(
            f"no worker came back within {settings.join_seconds:g} s (the limit is {settings.variable('join_seconds')})"
        )
    for worker in list(workers):
        if not worker.waiting:
            workers.remove(worker)
    absent = [str(slot) for slot in everyone if slot not in workers.waiting]
    _log.warning(
        "the others go on without the workers of slots %s, which did not come back within %g s (the limit is %s)",
        ", ".join(absent),
        rejoin_seconds,
        settings.variable("rejoin_seconds"),
    )


async def _wait_for_all(job: Job, condition: Callable[[], bool]) -> None:
    """Waits for all workers of a new job. Raises FailedPrecondition after the time that they have to join."""
    settings = job.settings
    if not await job.lifecycle.wait_until(condition, seconds=settings.join_seconds):
        raise FailedPrecondition(
            f"only {len(job.workers)} of {job.spec.workers} workers registered within {settings.join_seconds:g} s"
            f" (the limit is {settings.variable('join_seconds')})"
        )


def _registrations(job: Job, manifest: Manifest) -> list[Registration]:
    """Returns link and cache of every slot; those of an absent worker are what they were."""
    registrations: dict[int, Registration] = {}
    for slot, saved in enumerate(manifest.workers_of(job.spec.workers)):
        registrations[slot] = Registration(saved.name, saved.bandwidth, saved.cache_rows, "away", "away")
    for worker in job.workers:
        registrations[worker.slot] = worker.registration
    anyone = next(iter(registrations.values()))  # stands in for a slot that was lost before the first checkpoint
    return [registrations.get(slot, anyone) for slot in range(job.spec.workers)]


def _planner_from(
    checkpoint: RestoredCheckpoint, job: JobSpec, registrations: Sequence[Registration], members: WorkerSet
) -> Planner:
    """Makes a planner that goes on at a checkpoint and gives samples to the members only.

    The global batch stays the same. Caches begin as they were, or empty where the checkpoint was taken by workers with
    other caches.
    """
    shares = [m if slot in members else 0 for slot, m in enumerate(job.workloads)]
    if sum(shares) == 0:
        for slot, share in zip(members, equal_workloads(job.batch_size, len(members)), strict=True):
            shares[slot] = share
    workloads = scale_workloads(tuple(shares), job.batch_size)
    cache_rows = [registration.cache_rows for registration in registrations]
    complete = members == WorkerSet.all_of(job.workers)
    manifest = checkpoint.manifest
    return Planner(
        # Balanced workloads have limits that those of an incomplete set of workers cannot keep.
        replace(job, workloads=workloads, workload_limits=job.workload_limits if complete else None),
        [registration.bandwidth for registration in registrations],
        cache_rows,
        worker_limits=_limits(job, registrations) if complete else (),  # else the others train what is left over
        members=members,
        epoch=checkpoint.epoch,
        snapshot=checkpoint.planner,
        warm=manifest.iteration > 0 and manifest.fits(job.policy, cache_rows),
    )


def _reloads(planner: Planner, manifest: Manifest) -> list[bytes]:
    """Returns what the workers have to load, by slot; nothing when nothing is trained."""
    if not manifest.iteration:
        return []
    checksum = (manifest.checksums or {}).get(DENSE, "")
    return [encode_plan_message(replace(reload, dense_checksum=checksum)) for reload in planner.reloads()]
