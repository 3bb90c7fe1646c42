"""A job goes back to a checkpoint as a whole: samples, totals, workers, plans and epoch, in one step."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from esd.dispatcher.core.planner import Planner
from esd.dispatcher.core.progress import Progress
from esd.dispatcher.service.checkpoint.checkpoints import RestoredCheckpoint
from esd.dispatcher.service.run import reports
from esd.dispatcher.service.run.job import Job
from esd.dispatcher.service.settings import DispatcherSettings
from esd.dispatcher.service.state.epoch import Epoch, PlanLog, PublishedPlan
from esd.dispatcher.service.state.manifest import Manifest
from esd.services.domain.errors import FailedPrecondition, StaleEpoch
from esd.services.domain.reports import FailureReport, FlushReport, Report, TransferCounts
from esd.services.domain.state import JobPhase
from esd.services.domain.worker_set import WorkerSet
from tests.support.simple_clients import registration, report_of

BOTH = WorkerSet.all_of(2)


class Running:
    """A job of two workers with checkpoints, in its first epoch; `iteration` plans and trains one more iteration."""

    def __init__(self, spec: Any) -> None:
        checkpoints: Any = SimpleNamespace(
            job=spec, latest=Manifest({}), durable=False, idle=True, begin_epoch=lambda _: None
        )
        self.job = Job(spec, DispatcherSettings(shadow_mechanisms=()), checkpoints)
        self.leases = [self.job.register(registration(name)).lease_id for name in ("a", "b")]
        self.job.workers.settle_slots()
        self.planner = Planner(spec, [1e6, 1e6], [100, 100])
        self.rewind_to(Manifest({}), Progress(2).save())

    def rewind_to(self, manifest: Manifest, progress: bytes | None) -> Epoch:
        before = self.job.epoch.number if self.job.epoch is not None else 0
        epoch = Epoch(before + 1, manifest.iteration, BOTH, PlanLog(BOTH, manifest.iteration))
        self.job.rewind_to(RestoredCheckpoint(manifest, epoch.number, b"", progress), epoch)
        return epoch

    def iteration(self) -> None:
        epoch = self.job.current_epoch()
        decision = self.planner.plan(self.job.samples.take())
        self.job.publish(decision, [PublishedPlan(b"", len(plan.labels)) for plan in decision.plans])
        for lease, plan in zip(self.leases, decision.plans, strict=True):
            self.take_in(lease, report_of(plan, epoch=epoch.number))

    def take_in(self, lease: str, report: Report) -> None:
        reports.take_in(self.job, self.job.caller(lease), report)

    def checkpoint(self) -> Manifest:
        """The parts of the job that a checkpoint would keep now."""
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

    running.take_in(running.leases[0], FailureReport("a link broke", epoch=1))
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
    running.take_in(running.leases[1], FailureReport("late news", epoch=1))
    assert not running.job.current_epoch().over


def lose_worker(running: Running, cause: str, checkpoint: Manifest) -> None:
    """Ends the epoch, goes back, and is ready to plan again."""
    running.job.end_epoch(cause)
    running.rewind_to(checkpoint, None)
    running.planner = Planner(running.job.spec, [1e6, 1e6], [100, 100])


async def test_a_job_that_gets_nowhere_gives_up_and_names_each_cause(running: Running) -> None:
    for number in range(4):
        lose_worker(running, f"worker {number} was lost", Manifest({}))
    running.job.end_epoch("it was lost again")
    with pytest.raises(FailedPrecondition) as caught:
        running.rewind_to(Manifest({}), None)
    assert str(caught.value) == (
        "5 epochs in a row brought neither a new checkpoint nor an iteration that was not trained before; "
        + "".join(f"epoch {number + 1} at iteration 0: worker {number} was lost; " for number in range(4))
        + "epoch 5 at iteration 0: it was lost again"
    )


async def test_a_job_that_dies_at_the_same_place_gives_up(running: Running) -> None:
    """It trains iterations in every epoch, and always the same ones."""
    for _ in range(5):  # the first of them has come farther than any before
        running.iteration()
        running.iteration()
        lose_worker(running, "a worker was lost", Manifest({}))
    running.iteration()
    running.job.end_epoch("it was lost one iteration earlier")
    with pytest.raises(FailedPrecondition, match=r"epoch 2 at iteration 2: .* epoch 6 at iteration 1: it was lost one"):
        running.rewind_to(Manifest({}), None)


async def test_an_epoch_that_comes_farther_is_progress(running: Running) -> None:
    for farthest in (1, 2, 3):
        for _ in range(4):
            for _ in range(farthest):
                running.iteration()
            lose_worker(running, "a worker was lost", Manifest({}))
    assert len(running.job.recoveries) == 12


async def test_an_epoch_with_a_new_checkpoint_is_progress(running: Running) -> None:
    """Even where more was trained before than it reaches."""
    for _ in range(3):
        running.iteration()
    for _ in range(4):
        lose_worker(running, "a worker was lost", Manifest({}))
    running.iteration()
    checkpoint = running.checkpoint()
    for _ in range(5):
        running.job.end_epoch("a worker was lost")
        running.rewind_to(checkpoint, None)
    running.job.end_epoch("it was lost again")
    with pytest.raises(FailedPrecondition, match="5 epochs in a row"):
        running.rewind_to(checkpoint, None)


async def test_what_the_last_checkpoint_has_is_trained_whoever_is_lost_behind_it(running: Running) -> None:
    """While workers come back, drivers may record how good the model was there."""
    job = running.job
    running.iteration()
    running.iteration()
    manifest = running.checkpoint()
    job.checkpoints.latest = manifest
    running.iteration()
    assert job.confirmed == 3
    job.register(registration("a", instance="another process"))
    assert (job.lifecycle.phase, job.confirmed) == (JobPhase.RECOVERING, 2)
    for worker in list(job.workers):
        job.workers.remove(worker)
    assert job.confirmed == 2


async def test_reports_of_a_worker_that_does_not_train_in_the_epoch_are_refused(running: Running) -> None:
    """It has come while the others train, and waits for the next checkpoint."""
    job = running.job
    job.end_epoch("worker b was lost")
    job.workers.remove(job.workers.holder(running.leases[1]))
    alone = WorkerSet.of([0])
    job.rewind_to(RestoredCheckpoint(Manifest({}), 2, b"", None), Epoch(2, 0, alone, PlanLog(alone)))
    newcomer = job.register(registration("b")).lease_id
    decision = running.planner.plan(job.samples.take())
    job.publish(decision, [PublishedPlan(b"", len(plan.labels)) for plan in decision.plans])
    job.current_epoch().plans.checkpoint_flushes[1] = [b"", b""]
    for report in (report_of(decision.plans[1], epoch=2), FlushReport(1, TransferCounts(), epoch=2)):
        with pytest.raises(FailedPrecondition, match=r"worker b \(slot 1\) reports to epoch 2, in which it does not"):
            running.take_in(newcomer, report)
    assert job.totals.progress.samples == 0
