"""From one epoch to the next: the workers assemble, and all processes return to the last checkpoint.

A job without checkpoints has one epoch, from the first iteration on, which begins in the same way.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial

from esd.dispatcher.core.planner import Planner
from esd.dispatcher.service.checkpoint.checkpoints import Checkpoints, RestoredCheckpoint
from esd.dispatcher.service.run.job import Job
from esd.dispatcher.service.state.epoch import Epoch, PlanLog
from esd.dispatcher.service.state.manifest import DENSE, Manifest
from esd.services.domain.errors import FailedPrecondition, StaleEpoch
from esd.services.domain.jobs import JobSpec, equal_workloads
from esd.services.domain.reports import Registration
from esd.services.domain.worker_set import WorkerSet
from esd.services.domain.workloads import scale_workloads
from esd.services.runtime.tasks import run_in
from esd.services.wire.plans import encode_plan_message

_log = logging.getLogger(__name__)


async def next_epoch(job: Job, thread: Executor) -> tuple[Epoch, Planner]:
    """Waits for the workers, restores the last checkpoint if the job takes checkpoints, and begins an epoch.

    Args:
        job: the job.
        thread: makes the planner.

    Returns:
        The epoch and its planner.

    Raises:
        FailedPrecondition: workers are missing for too long, five epochs in a row made no progress, a checkpoint is
            damaged, or a parameter server cannot restore it.
        StaleEpoch: the set of waiting workers changed meanwhile; the caller tries again.
        Unavailable: a parameter server is away for too long.
    """
    if job.checkpoints is None:
        return await _only_epoch(job, thread)
    # A commit that is still running would change the latest checkpoint while `restore` reads it.
    await job.checkpoints.abandon()
    await _assemble_workers(job)
    job.choose_dense_sum()
    checkpoint = await job.checkpoints.restore()
    members = job.workers.waiting
    if not members:
        raise StaleEpoch("all workers were lost while the epoch began")
    if job.workers.absent_sites:
        raise StaleEpoch(f"the last worker of site {job.workers.absent_sites[0]!r} was lost while the epoch began")
    registrations = _registrations(job, checkpoint.manifest)
    planner = await run_in(thread, _planner_from, checkpoint, job.spec, registrations, members)
    if job.epoch is None and checkpoint.manifest.iteration == job.spec.first_iteration:  # they need the whole stream
        await run_in(thread, partial(job.shadows.start, job.spec, registrations, checkpoint.planner, warm=planner.warm))
    if job.workers.waiting != members:  # a planner is made for its members, and the awaits above took time
        raise StaleEpoch("a worker was lost or restarted while the epoch began")
    checkpoint = replace(checkpoint, planner=None)  # it is as long as the caches, and so are the reloads
    first = checkpoint.manifest.iteration
    reloads = _reloads(planner, checkpoint.manifest)
    epoch = Epoch(checkpoint.epoch, first, members, PlanLog(members, first), reloads)
    job.rewind_to(checkpoint, epoch)
    if planner.knows_workers:
        job.feedback.load(checkpoint.feedback)
    return epoch, planner


async def resume_finished(job: Job, checkpoints: Checkpoints) -> None:
    """Shows a job that an earlier dispatcher finished, after completing the last commit on shards that missed it.

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
    job.choose_dense_sum()
    everyone = WorkerSet.all_of(job.spec.workers)
    epoch = Epoch(0, 0, everyone, PlanLog(everyone))
    job.begin_epoch(epoch)
    registrations = [worker.registration for worker in job.workers]
    planner = await run_in(thread, _new_planner, job.spec, registrations)
    await run_in(thread, job.shadows.start, job.spec, registrations)
    return epoch, planner


def _new_planner(job: JobSpec, registrations: Sequence[Registration]) -> Planner:
    bandwidths, cache_rows = [r.bandwidth for r in registrations], [r.cache_rows for r in registrations]
    rests = all(r.may_rest for r in registrations)
    return Planner(job, bandwidths, cache_rows, worker_limits=_limits(job, registrations), rests=rests)


def _limits(job: JobSpec, registrations: Sequence[Registration]) -> list[tuple[int, int]]:
    """Returns the smallest and the largest number of samples per iteration of each worker."""
    return [(r.least_samples, r.most_samples or job.batch_size) for r in registrations]


async def _assemble_workers(job: Job) -> None:
    """Waits until all workers wait for an epoch.

    Before the first epoch the wait ends after `join_seconds`. Later, workers that are still missing after
    `rejoin_seconds` lose their slots if at least one worker waits, of each site if samples have sites, and the next
    epoch begins without them.

    Raises:
        FailedPrecondition: workers are missing before the first epoch, or later every worker, or every worker of a
            site, for `join_seconds`.
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
        lambda: len(workers.waiting) > 0 and not workers.absent_sites, seconds=settings.join_seconds - rejoin_seconds
    ):
        if workers.absent_sites and len(workers.waiting) > 0:
            raise FailedPrecondition(
                f"no worker of site {workers.absent_sites[0]!r} came back within {settings.join_seconds:g} s, and its "
                f"samples are trained nowhere else (the limit is {settings.variable('join_seconds')})"
            )
        raise FailedPrecondition(
            f"no worker came back within {settings.join_seconds:g} s (the limit is {settings.variable('join_seconds')})"
        )
    for worker in list(workers):
        if not worker.waiting:
            workers.remove(worker)
    absent = [str(slot) for slot in everyone if slot not in workers.waiting]
    _log.warning(
        "the next epoch begins without the workers of slots %s, which did not come back within %g s (the limit is %s)",
        ", ".join(absent),
        rejoin_seconds,
        settings.variable("rejoin_seconds"),
    )


async def _wait_for_all(job: Job, condition: Callable[[], bool]) -> None:
    """Waits for all workers of a new job. Raises FailedPrecondition after `join_seconds`."""
    settings = job.settings
    if not await job.lifecycle.wait_until(condition, seconds=settings.join_seconds):
        raise FailedPrecondition(
            f"only {len(job.workers)} of {job.spec.workers} workers registered within {settings.join_seconds:g} s"
            f" (the limit is {settings.variable('join_seconds')})"
        )


def _registrations(job: Job, manifest: Manifest) -> list[Registration]:
    """Returns one registration per slot; an absent worker has the link and the cache from the checkpoint."""
    registrations: dict[int, Registration] = {}
    for slot, saved in enumerate(manifest.workers_of(job.spec.workers)):
        registrations[slot] = Registration(saved.name, saved.bandwidth, saved.cache_rows, "away", "away")
    for worker in job.workers:
        registrations[worker.slot] = worker.registration
    # A worker that was lost before the first checkpoint is in no manifest. Its slot gets no samples, so any link will
    # do.
    stand_in = next(iter(registrations.values()))
    return [registrations.get(slot, stand_in) for slot in range(job.spec.workers)]


def _planner_from(
    checkpoint: RestoredCheckpoint, job: JobSpec, registrations: Sequence[Registration], members: WorkerSet
) -> Planner:
    """Makes a planner that continues from a checkpoint and assigns samples to the members only.

    The size of the global batch stays the same. The caches start with their content at the checkpoint, or all empty if
    the cache policy or a cache size has changed since.
    """
    shares = [m if slot in members else 0 for slot, m in enumerate(job.workloads)]
    if sum(shares) == 0:
        for slot, share in zip(members, equal_workloads(job.batch_size, len(members)), strict=True):
            shares[slot] = share
    if job.worker_sites is not None:  # members of a site whose own shares are 0 take the samples of the absent ones
        for slots in job.worker_sites.slots:
            here = [slot for slot in slots if slot in members]
            if here and not sum(shares[slot] for slot in here):
                for slot in here:
                    shares[slot] = 1
    workloads = scale_workloads(tuple(shares), job.batch_size)
    cache_rows = [registration.cache_rows for registration in registrations]
    complete = members == WorkerSet.all_of(job.workers)
    manifest = checkpoint.manifest
    return Planner(
        # Limits of balanced workloads are set for the full set of workers; fewer workers cannot keep them.
        replace(job, workloads=workloads, workload_limits=job.workload_limits if complete else None),
        [registration.bandwidth for registration in registrations],
        cache_rows,
        worker_limits=_limits(job, registrations) if complete else (),  # else members take the absent workers' samples
        members=members,
        epoch=checkpoint.epoch,
        snapshot=checkpoint.planner,
        warm=manifest.iteration > 0 and manifest.fits(job.policy, cache_rows),
        rests=all(registrations[slot].may_rest for slot in members),
    )


def _reloads(planner: Planner, manifest: Manifest) -> list[bytes]:
    """Returns the reload messages for the workers' caches, by slot; none before the first trained iteration."""
    if not manifest.iteration:
        return []
    checksum = (manifest.checksums or {}).get(DENSE, "")
    return [encode_plan_message(replace(reload, dense_checksum=checksum)) for reload in planner.reloads()]
