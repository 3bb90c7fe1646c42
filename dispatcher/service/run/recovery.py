"""From one epoch to the next: who is there, back to the last checkpoint, plans from there on."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import replace

from dispatcher.core.planner import Planner
from dispatcher.service.checkpoint.checkpoints import Checkpoints
from dispatcher.service.run.job import Job
from dispatcher.service.state.epoch import Epoch
from dispatcher.service.state.manifest import DENSE, PARTS, Manifest
from dispatcher.service.state.plan_log import PlanLog
from protos import dispatcher_pb2
from services.domain.errors import FailedPrecondition, StaleEpoch
from services.domain.jobs import JobSpec, equal_workloads, scale_workloads
from services.domain.reports import Registration
from services.domain.state import Recovery
from services.domain.worker_set import WorkerSet
from services.wire.plans import encode_plan_message

_FRUITLESS_EPOCHS = 5  # in a row, after which another one would hardly help

_log = logging.getLogger(__name__)


async def next_epoch(job: Job, checkpoints: Checkpoints, thread: Executor) -> tuple[Epoch, Planner]:
    """Assembles the workers, takes everyone back to the last checkpoint, and begins an epoch there.

    Raises:
        FailedPrecondition: epoch after epoch ends without an iteration trained; a checkpoint is damaged; a parameter
            server cannot go back.
        StaleEpoch: the workers have changed meanwhile; try again.
        Unavailable: a parameter server is away for too long.
    """
    before = job.epoch
    await checkpoints.abandon()
    await _gather(job)

    kept = await checkpoints.store.committed()
    manifest = Manifest.decode(kept.manifest)
    checkpoints.latest = manifest
    checkpoints.epoch = max(checkpoints.epoch, kept.epoch) + 1
    await checkpoints.store.restore(manifest.iteration, checkpoints.epoch)
    parts = {}
    if manifest.iteration:
        for name in PARTS:
            parts[name] = await checkpoints.store.get_part(manifest.iteration, name)
            manifest.check_part(name, parts[name])

    members = _waiting(job)
    registrations = _registrations(job, manifest)
    planner = await asyncio.get_running_loop().run_in_executor(
        thread, _planner, job.spec, registrations, members, checkpoints.epoch, manifest, parts.get("engine")
    )
    if _waiting(job) != members:
        raise StaleEpoch("a worker was lost or restarted while the epoch began")
    job.intake.rewind(manifest.samples)
    job.figures.load(manifest.planned or {}, parts.get("progress"), len(members))
    for member in job.roster.members:
        saved = manifest.crew(job.spec.workers)
        member.begin_epoch(manifest.iteration, saved[member.slot] if saved else None)
    reloads = _reloads(planner, manifest)
    plans = PlanLog(job.spec.workers, manifest.iteration)
    epoch = Epoch(checkpoints.epoch, manifest.iteration, members, plans, reloads)
    if before is not None:
        _account(job, before, epoch)
    checkpoints.begin_epoch(epoch.first)
    job.begin_epoch(epoch)
    return epoch, planner


async def take_up_end(job: Job, checkpoints: Checkpoints) -> None:
    """Takes up a job that was brought to its end before; nothing is left to do.

    Raises:
        FailedPrecondition: the last checkpoint is damaged.
        Unavailable: the first parameter server is away for too long.
    """
    done = checkpoints.latest
    progress = await checkpoints.store.get_part(done.iteration, "progress")
    done.check_part("progress", progress)
    job.finish_as(done, progress)


async def _gather(job: Job) -> None:
    """Waits for all workers; for those of an earlier epoch no longer than the rejoin window, if others are there."""
    roster, life = job.roster, job.life
    if not roster.seated:
        await life.until(lambda: roster.complete and all(member.waiting for member in roster.members))
        roster.seat()
        return
    loop = asyncio.get_running_loop()
    window = loop.time() + job.settings.rejoin_seconds
    timers = [
        loop.call_at(window, life.notify),
        loop.call_later(job.settings.join_seconds, life.fail, "no worker came back"),
    ]
    try:
        await life.until(
            lambda: (
                (roster.complete and all(member.waiting for member in roster.members))
                or (loop.time() >= window and any(member.waiting for member in roster.members))
            )
        )
    finally:
        for timer in timers:
            timer.cancel()
    for member in roster.members:
        if not member.waiting:
            _log.warning("%s did not come back in time; the others go on without it", member)
            roster.remove(member)


def _waiting(job: Job) -> WorkerSet:
    """The slots whose workers wait for an epoch."""
    return WorkerSet.of(member.slot for member in job.roster.members if member.waiting)


def _registrations(job: Job, manifest: Manifest) -> list[Registration]:
    """Link and cache of every slot; those of an absent worker as they were."""
    registrations: dict[int, Registration] = {}
    for slot, saved in enumerate(manifest.crew(job.spec.workers)):
        registrations[slot] = Registration(saved.name, saved.bandwidth, saved.cache_rows, "away", "away")
    for member in job.roster.members:
        registrations[member.slot] = member.registration
    anyone = next(iter(registrations.values()))  # stands in for a slot that was lost before the first checkpoint
    return [registrations.get(slot, anyone) for slot in range(job.spec.workers)]


def _planner(
    job: JobSpec,
    registrations: Sequence[Registration],
    members: WorkerSet,
    epoch: int,
    manifest: Manifest,
    snapshot: bytes | None,
) -> Planner:
    """A planner that gives samples to the members only. The global batch stays the same.

    Caches begin as they were, or empty where the checkpoint was taken by workers with other caches.
    """
    shares = [m if slot in members else 0 for slot, m in enumerate(job.workloads)]
    if sum(shares) == 0:
        for slot, share in zip(members, equal_workloads(job.batch_size, len(members)), strict=True):
            shares[slot] = share
    workloads = scale_workloads(tuple(shares), job.batch_size)
    cache_rows = [r.cache_rows for r in registrations]
    complete = members == WorkerSet.all_of(job.workers)
    return Planner(
        # Balanced workloads have limits that those of an incomplete set of workers cannot keep.
        replace(job, workloads=workloads, workload_limits=job.workload_limits if complete else None),
        [r.bandwidth for r in registrations],
        cache_rows,
        epoch=epoch,
        snapshot=snapshot,
        warm=manifest.iteration > 0 and manifest.fits(job.policy, cache_rows),
    )


def _reloads(planner: Planner, manifest: Manifest) -> list[dispatcher_pb2.PlanMessage]:
    """What the workers have to load, by slot; nothing when nothing is trained."""
    if not manifest.iteration:
        return []
    checksum = (manifest.checksums or {}).get(DENSE, "")
    return [encode_plan_message(replace(reload, dense_checksum=checksum)) for reload in planner.reloads()]


def _account(job: Job, before: Epoch, epoch: Epoch) -> None:
    """Notes the recovery, and fails a job that gets nowhere."""
    recovery = Recovery(
        before.cause, epoch.number, max(0, before.trained - epoch.first), time.monotonic() - before.ended
    )
    job.recoveries.append(recovery)
    job.fruitless = job.fruitless + 1 if before.trained <= before.first else 0
    if job.fruitless >= _FRUITLESS_EPOCHS:
        raise FailedPrecondition(
            f"{job.fruitless} epochs in a row ended before an iteration was trained, the last one because "
            f"{before.cause}; the last checkpoint is {epoch.first}"
        )
    _log.info(
        "epoch %d begins at iteration %d after %.2f s, %d iterations are trained again",
        epoch.number, epoch.first, recovery.seconds, recovery.iterations_redone,
    )  # fmt: skip
