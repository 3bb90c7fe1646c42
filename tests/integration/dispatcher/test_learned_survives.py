"""The learned state of stream and workers outlives the dispatcher: its successor plans as if nothing had happened."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from esd.ps_server.service.app import parameter_server
from esd.ps_server.service.settings import ParameterServerSettings
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import StaleEpoch
from esd.services.domain.jobs import JobSpec
from esd.services.domain.plans import IterationPlan
from esd.services.domain.reports import FailureReport, PhaseTimes
from tests.support.simple_clients import Dispatcher, Worker, job_with, report_of, samples, state_when, stream, train_all

BATCHES = [samples(8, seed=seed) for seed in range(24)]
CUT, LOST = 12, 14  # the last checkpoint before the dispatcher is lost, and how far it had come
COMPUTE = {"edge-0": 0.001, "edge-1": 0.004}  # seconds per sample
BANDWIDTH = {"edge-0": 1e6, "edge-1": 5e6}  # as measured; both registered with 1e6

StartDispatcher = Callable[..., Awaitable[Dispatcher]]


@pytest.fixture
async def servers() -> AsyncIterator[tuple[str, str]]:
    settings = ParameterServerSettings(metrics_port=None, grace_seconds=0)
    async with parameter_server(settings) as one, parameter_server(settings) as other:
        yield one.address, other.address


def job_on(server: str, mechanism: str) -> JobSpec:
    return job_with(
        parameter_servers=(server,),
        checkpoint_every=6,
        window=3,
        mechanism=mechanism,
        workload_limits=(1, 7),
        measured_links=True,
    )


async def workers_of(dispatcher: Dispatcher) -> list[Worker]:
    """Two workers that report computation in proportion to their samples, and links that are not as registered."""
    workers = [dispatcher.worker(name) for name in COMPUTE]
    for worker in workers:
        await worker.register()
        worker.report = lambda plan, worker=worker: worker.send(  # type: ignore[method-assign,misc]
            report_of(
                plan,
                phases=PhaseTimes(compute=COMPUTE[worker.name] * len(plan.labels)),
                measured_bandwidth=BANDWIDTH[worker.name],
            )
        )
    return workers


async def train(dispatcher: Dispatcher, job: JobSpec, batches: list[SampleBatch]) -> list[Worker]:
    """Trains a job to its end."""
    await dispatcher.client.create_job(job)
    workers = await workers_of(dispatcher)
    await train_all(dispatcher, job, workers, stream(batches))
    return workers


async def without_end(batches: list[SampleBatch]) -> AsyncIterator[SampleBatch]:
    for batch in batches:
        yield batch
    await asyncio.Event().wait()


def from_the_cut(workers: list[Worker], epoch: int) -> list[list[object]]:
    """The samples and transfers of each worker by the plans of an epoch, from the checkpoint on."""
    columns = ("positions", "unique_ids", "unique_slots", "unique_versions")
    return [
        [(plan.iteration, *(getattr(plan, name).tolist() for name in columns), plan.pulls.ids.tolist())]
        for worker in workers
        for plan in worker.plans
        if plan.epoch == epoch and plan.iteration >= CUT
    ]


def last_epoch(workers: list[Worker]) -> int:
    return max(plan.epoch for worker in workers for plan in worker.plans)


@pytest.mark.parametrize("mechanism", ["hash", "history", "joint"])
async def test_plans_behind_a_lost_dispatcher_are_those_without_the_loss(
    start_dispatcher: StartDispatcher, servers: tuple[str, str], mechanism: str
) -> None:
    undisturbed = await train(await start_dispatcher(), job_on(servers[0], mechanism), BATCHES)
    expected = from_the_cut(undisturbed, last_epoch(undisturbed))
    workloads = {len(plan.labels) for plan in undisturbed[0].plans}
    assert len(expected) == 2 * (len(BATCHES) - CUT)
    assert len(workloads) > 1, "nothing was learned"

    job = job_on(servers[1], mechanism)
    lost = await start_dispatcher()
    await lost.client.create_job(job)
    tasks = [asyncio.create_task(worker.train()) for worker in await workers_of(lost)]
    tasks.append(asyncio.create_task(lost.client.submit(job.name, without_end(BATCHES[:LOST]))))
    await state_when(lost.client, lambda state: state.checkpoint == CUT and state.iterations_confirmed == LOST)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await lost.stop()

    successors = await train(await start_dispatcher(), job, BATCHES[LOST:])  # the others are in the sample log
    assert from_the_cut(successors, last_epoch(successors)) == expected


async def test_so_are_those_behind_a_lost_worker(start_dispatcher: StartDispatcher, servers: tuple[str, str]) -> None:
    undisturbed = await train(await start_dispatcher(), job_on(servers[0], "laia"), BATCHES)
    dispatcher, job = await start_dispatcher(), job_on(servers[1], "laia")
    await dispatcher.client.create_job(job)
    first, second = await workers_of(dispatcher)
    reports = first.report

    async def fails_once(plan: IterationPlan) -> None:
        if plan.iteration == LOST and plan.epoch == first.plans[0].epoch:
            await state_when(dispatcher.client, lambda state: state.checkpoint == CUT)
            await first.send(FailureReport("no space left", plan.epoch))
            raise StaleEpoch("this epoch is over")
        await reports(plan)

    first.report = fails_once  # type: ignore[method-assign]
    await train_all(dispatcher, job, (first, second), stream(BATCHES))
    state = await dispatcher.client.describe()
    assert state is not None
    assert len(state.recoveries) == 1
    both = [first, second]
    assert from_the_cut(both, last_epoch(both)) == from_the_cut(undisturbed, last_epoch(undisturbed))
