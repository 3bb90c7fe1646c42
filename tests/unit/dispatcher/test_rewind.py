"""A job goes back to a checkpoint as a whole: samples, totals, workers, plans and epoch, in one step."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from dispatcher.core.planner import Planner
from dispatcher.core.progress import Progress
from dispatcher.service.checkpoint.checkpoints import RestoredCheckpoint
from dispatcher.service.run import reports
from dispatcher.service.run.job import Job
from dispatcher.service.settings import DispatcherSettings
from dispatcher.service.state.epoch import Epoch, PlanLog, PublishedPlan
from dispatcher.service.state.manifest import Manifest
from services.domain.errors import FailedPrecondition, StaleEpoch
from services.domain.reports import FailureReport
from services.domain.state import JobPhase
from services.domain.worker_set import WorkerSet
from services.wire.plans import encode_plan_message
from tests.support.simple_clients import registration, report_of

BOTH = WorkerSet.all_of(2)


class Running:
    """A job of two workers with checkpoints, in its first epoch; `iteration` plans and trains one more iteration."""

    def __init__(self, spec: Any) -> None:
        checkpoints: Any = SimpleNamespace(latest=Manifest({}), durable=False, begin_epoch=lambda _: None)
        self.job = Job(spec, DispatcherSettings(shadow_mechanisms=()), checkpoints)
        self.leases = [self.job.register(registration(name)).lease_id for name in ("a", "b")]
        self.job.workers.settle_slots()
        self.planner = Planner(spec, [1e6, 1e6], [100, 100])
        self.rewind_to(Manifest({}), Progress(2).save())

    def rewind_to(self, manifest: Manifest, progress: bytes | None) -> Epoch:
        before = self.job.epoch.number if self.job.epoch is not None else 0
        epoch = Epoch(before + 1, manifest.iteration, BOTH, PlanLog(2, manifest.iteration))
        self.job.rewind_to(RestoredCheckpoint(manifest, epoch.number, b"", progress), epoch)
        return epoch

    def iteration(self) -> None:
        epoch = self.job.current_epoch()
        decision = self.planner.plan(self.job.samples.take())
        self.job.publish(
            decision, [PublishedPlan(encode_plan_message(plan), len(plan.labels)) for plan in decision.plans]
        )
        for lease, plan in zip(self.leases, decision.plans, strict=True):
            reports.report_iteration(self.job, lease, report_of(plan, epoch=epoch.number))

    def checkpoint(self) -> Manifest:
        """What a checkpoint would keep of the job now."""
        job = self.job
        return Manifest(
            {},
            iteration=job.current_epoch().plans.planned,
            samples=job.samples.position,
            workers=tuple(worker.saved for worker in job.workers),
            planned=job.totals.save_planned(),
        )


@pytest.fixture
async def running(make_job: Any, make_batches: Any) -> AsyncIterator[Running]:
    running = Running(make_job(workers=2, workloads=(8, 8), checkpoint_every=10))
    for batch in make_batches(4, samples=16, fields=3, rows=50, seed=1):
        running.job.samples.put(batch)
    yield running
    for worker in running.job.workers:
        worker.stop_expiry()


def figures(job: Job) -> list[object]:
    totals = job.totals
    return [
        (totals.cost_seconds, totals.lookups, totals.hits, totals.progress.samples, totals.progress.loss),
        [(worker.confirmed, worker.transfers, worker.phases) for worker in job.workers],
        (job.samples.position, job.samples.pending, job.confirmed),
    ]


async def test_everything_is_what_it_was_at_the_checkpoint(running: Running) -> None:
    job = running.job
    running.iteration()
    manifest, progress, before = running.checkpoint(), job.totals.progress.save(), figures(job)
    running.iteration()
    running.iteration()
    assert figures(job) != before

    reports.report_failure(job, running.leases[0], FailureReport("a link broke", epoch=1))
    assert job.lifecycle.phase is JobPhase.RECOVERING
    with pytest.raises(StaleEpoch, match=r"epoch 1 is over: worker a \(slot 0\) cannot go on: a link broke"):
        job.current_epoch().raise_if_over()
    for worker in job.workers:
        worker.waiting = True

    epoch = running.rewind_to(manifest, progress)
    assert figures(job) == before
    assert job.current_epoch() is epoch
    assert job.lifecycle.phase is JobPhase.RUNNING
    assert list(job.workers.waiting) == []
    assert [(r.epoch, r.iterations_redone) for r in job.recoveries] == [(2, 2)]
    assert [worker.flushed_checkpoint for worker in job.workers] == [1, 1]


async def test_a_report_about_an_epoch_that_is_over_ends_nothing(running: Running) -> None:
    running.job.end_epoch("a worker was lost")
    running.rewind_to(Manifest({}), None)
    reports.report_failure(running.job, running.leases[1], FailureReport("late news", epoch=1))
    assert not running.job.current_epoch().over


async def test_a_job_that_gets_nowhere_gives_up(running: Running) -> None:
    for _ in range(4):
        running.job.end_epoch("a worker was lost")
        running.rewind_to(Manifest({}), None)
    running.job.end_epoch("it was lost again")
    with pytest.raises(FailedPrecondition, match="5 epochs in a row ended before an iteration was trained, the last"):
        running.rewind_to(Manifest({}), None)


async def test_an_epoch_with_an_iteration_counts_as_progress(running: Running) -> None:
    for _ in range(6):
        running.iteration()
        running.job.end_epoch("a worker was lost")
        running.rewind_to(Manifest({}), None)
        running.planner = Planner(running.job.spec, [1e6, 1e6], [100, 100])
    assert len(running.job.recoveries) == 6
