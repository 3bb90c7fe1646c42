"""A running dispatcher, and clients that act as a driver and workers, without training."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from esd.services.clients.attendance import Attendance
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.domain.batches import SampleBatch
from esd.services.domain.dense_sums import ALL_REDUCE
from esd.services.domain.errors import StaleEpoch
from esd.services.domain.features import numbered_ids
from esd.services.domain.jobs import JobSpec, ModelSpec, equal_workloads
from esd.services.domain.plans import EndOfStream, FlushPlan, IterationPlan, Membership, PlanMessage
from esd.services.domain.reports import (
    FlushReport,
    IterationReport,
    Lease,
    PhaseTimes,
    Registration,
    Report,
    TransferCounts,
    WorkerPhase,
    label_classes,
)
from esd.services.domain.state import JobState
from esd.services.domain.tables import OptimizerSpec, TableSpec
from tests.support.server_client import ServerClient

POLL_SECONDS = 0.02  # between questions for the state

JOB = JobSpec(
    name="flights",
    dense_sum=ALL_REDUCE,
    workers=2,
    features=numbered_ids(3),
    dense_features=1,
    batch_size=8,
    workloads=(4, 4),
    mechanism="random",
    policy="lru",
    seed=7,
    window=2,
    tables=(TableSpec("embeddings", 4, OptimizerSpec(), 7, 0.1),),
    model=ModelSpec("wdl", (8,), OptimizerSpec()),
    parameter_servers=("127.0.0.1:1",),
)


def job_with(**changes: Any) -> JobSpec:
    """JOB with changes; workloads follow batch size and workers; `fields` is a number of features."""
    workers = changes.get("workers", JOB.workers)
    batch_size = changes.get("batch_size", JOB.batch_size)
    if "fields" in changes:
        changes["features"] = numbered_ids(changes.pop("fields"))
    return replace(JOB, **({"workloads": equal_workloads(batch_size, workers)} | changes))


def samples(count: int, *, seed: int = 0, job: JobSpec = JOB) -> SampleBatch:
    """Returns a number of random samples; the dense feature is the sample's number."""
    rng = np.random.default_rng(seed)
    return SampleBatch.of_fields(
        rng.integers(0, 50, (count, job.fields), dtype=np.uint64),
        np.repeat(np.arange(count, dtype=np.float32)[:, None], job.dense_features, axis=1),
        rng.integers(0, 2, count).astype(np.float32),
    )


async def stream(batches: Iterable[SampleBatch]) -> AsyncIterator[SampleBatch]:
    for batch in batches:
        yield batch


def registration(name: str, **changes: Any) -> Registration:
    return replace(Registration(name, 1e6, 100, f"{name}:7000", f"{name}-process"), **changes)


def report_of(plan: IterationPlan, **changes: Any) -> IterationReport:
    """The report of a worker that predicts one half for every sample."""
    samples, labels = plan.labels.shape
    report = IterationReport(
        iteration=plan.iteration,
        loss_sum=samples * float(np.log(2)),
        score_bins=np.full(plan.labels.shape, 32768, np.uint16),
        labels=label_classes(plan.labels),
        transfers=TransferCounts(
            miss_pull=len(plan.pulls),
            update_push=len(plan.update_rows) + len(plan.update_gradients),
            evict_push=len(plan.evict_rows) + len(plan.evict_gradients),
            bytes_pulled=16 * len(plan.pulls),
            link_rows_down=16 * len(plan.pulls),
        ),
        phases=PhaseTimes(compute=0.5),
        seconds=0.5,
        epoch=plan.epoch,
        measured_bandwidth=2e6,
        label_loss_sums=(samples * float(np.log(2)),) * labels if labels > 1 else (),
    )
    return replace(report, **changes)


def flush_report_of(plan: FlushPlan) -> FlushReport:
    return FlushReport(plan.iteration, TransferCounts(flush_push=len(plan.rows) + len(plan.gradients)), plan.epoch)


async def cut(membership: Membership, plan: FlushPlan) -> None:
    """Tells the parameter servers that this worker owes them nothing, if the job takes checkpoints."""
    job = membership.job
    if not (job.takes_checkpoints and plan.iteration):
        return
    for address in job.parameter_servers:
        async with ServerClient(address, job.table) as shard:
            await shard.cut(plan.iteration, membership.slot, membership.members, epoch=plan.epoch)


@dataclass
class Worker:
    """Registers, and confirms its plans one by one.

    Its stream, with the heartbeats on it, stays open until it watches anew or leaves.
    """

    client: AsyncDispatcherClient
    name: str
    lease: Lease | None = None
    membership: Membership | None = None
    plans: list[IterationPlan] = field(default_factory=list)
    flush: FlushPlan | None = None
    end: EndOfStream | None = None
    phase: WorkerPhase = WorkerPhase.IDLE
    attendance: Attendance | None = None

    @property
    def held(self) -> Lease:
        assert self.lease is not None, f"{self.name} has not registered"
        return self.lease

    async def register(self, **changes: Any) -> Lease:
        self.lease = await self.client.register(registration(self.name, **changes))
        return self.lease

    async def attend(self, from_iteration: int = 0) -> Attendance:
        await self.leave()
        self.attendance = self.client.attend_here(self.held, from_iteration, phase=lambda: self.phase)
        return await self.attendance.__aenter__()

    async def leave(self) -> None:
        if self.attendance is not None:
            await self.attendance.aclose()

    async def watch(self, from_iteration: int = 0) -> AsyncIterator[PlanMessage]:
        async for message in await self.attend(from_iteration):
            yield message

    async def send(self, report: Report) -> None:
        """Sends a report on the stream that is open."""
        assert self.attendance is not None, f"{self.name} has no stream"
        await self.attendance.report(report)

    async def report(self, plan: IterationPlan, **changes: Any) -> None:
        await self.send(report_of(plan, **changes))

    async def flushed(self, plan: FlushPlan) -> None:
        if self.membership is not None:
            await cut(self.membership, plan)
        await self.send(flush_report_of(plan))

    async def train(self) -> None:
        """The whole life of a worker, epoch by epoch."""
        if self.lease is None:
            await self.register()
        while self.end is None:
            with suppress(StaleEpoch):
                await self.train_epoch()

    async def train_epoch(self) -> None:
        """Raises StaleEpoch when another epoch follows."""
        async for message in self.watch():
            match message:
                case Membership():
                    self.membership = message
                case IterationPlan():
                    self.plans.append(message)
                    await self.report(message)
                case FlushPlan():
                    self.flush = message
                    await self.flushed(message)
                case EndOfStream():
                    self.end = message


async def state_when(
    client: AsyncDispatcherClient, condition: Callable[[JobState], bool], within: float = 60
) -> JobState:
    """Asks for the state until it is as wanted, which it must be soon."""
    async with asyncio.timeout(within):
        while True:
            state = await client.describe()
            if state is not None and condition(state):
                return state
            await asyncio.sleep(POLL_SECONDS)


@dataclass
class Dispatcher:
    """A running dispatcher and a client of it."""

    address: str
    client: AsyncDispatcherClient
    stop: Callable[[], Awaitable[None]]
    page_address: str | None = None
    workers: list[Worker] = field(default_factory=list)

    def worker(self, name: str) -> Worker:
        self.workers.append(Worker(self.client, name))
        return self.workers[-1]

    async def dismiss(self) -> None:
        """Closes the streams of all workers."""
        for worker in self.workers:
            await worker.leave()


async def run_to_the_end(dispatcher: Dispatcher, job: JobSpec, batches: Iterable[SampleBatch]) -> list[Worker]:
    """Creates a job, trains it and returns its workers, by slot."""
    await dispatcher.client.create_job(job)
    workers = [dispatcher.worker(f"edge-{slot}") for slot in range(job.workers)]
    for worker in workers:
        await worker.register()
    await train_all(dispatcher, job, workers, stream(batches))
    return workers


async def train_all(
    dispatcher: Dispatcher, job: JobSpec, workers: Iterable[Worker], batches: AsyncIterator[SampleBatch]
) -> None:
    """Trains a job that is open to its end, with these workers and samples."""
    async with asyncio.TaskGroup() as tasks:
        for worker in workers:
            tasks.create_task(worker.train())
        tasks.create_task(dispatcher.client.submit(job.name, batches))
