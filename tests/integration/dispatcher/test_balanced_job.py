"""Balanced workloads in a running dispatcher: the reports of one window ago decide, not the faster worker."""

import asyncio
import json

import numpy as np

from esd.dispatcher.core.feedback import Feedback
from esd.dispatcher.core.planner import Planner
from esd.services.domain.plans import FlushPlan, IterationPlan, Membership
from esd.services.domain.reports import PhaseTimes
from tests.support.command import esd
from tests.support.simple_clients import Dispatcher, Worker, job_with, samples, stream

COMPUTE = {"edge-0": 0.1, "edge-1": 0.5}  # seconds per sample


async def train(worker: Worker) -> None:
    """Reports computation in proportion to its samples, and next to no traffic."""
    async for message in worker.watch():
        match message:
            case Membership():
                worker.membership = message
            case IterationPlan():
                worker.plans.append(message)
                phases = PhaseTimes(compute=COMPUTE[worker.name] * len(message.labels))
                await worker.report(message, phases=phases, measured_bandwidth=1e12)
            case FlushPlan():
                await worker.flushed(message)


async def test_slow_workers_get_fewer_samples_and_recorded_feedback_replays_it(dispatcher: Dispatcher) -> None:
    job = job_with(workload_limits=(1, 7), window=3, mechanism="laia")
    batches = [samples(8, seed=seed) for seed in range(40)]
    await dispatcher.client.create_job(job)
    workers = [dispatcher.worker(name) for name in COMPUTE]
    for worker in workers:
        await worker.register()
    async with asyncio.TaskGroup() as tasks:
        for worker in workers:
            tasks.create_task(train(worker))
        tasks.create_task(dispatcher.client.submit(job.name, stream(batches)))

    workloads = [[len(worker.plans[t].labels) for worker in workers] for t in range(40)]
    assert workloads[:3] == [[4, 4]] * 3
    assert workloads[-1] in ([6, 2], [7, 1])

    state = await dispatcher.client.describe()
    assert [worker.workload for worker in state.workers] == workloads[-1]
    assert {worker.measured_bandwidth for worker in state.workers} == {1e12}
    shown = await asyncio.to_thread(esd, "status", "--json", "--dispatcher", dispatcher.address)
    told = json.loads(shown.stdout.splitlines()[-1])["workers"]
    assert [worker["workload"] for worker in told] == workloads[-1]
    assert [worker["measured_bandwidth"] for worker in told] == [1e12] * 2

    planner = Planner(job, [1e6, 1e6], [100, 100])
    for t, batch in enumerate(batches):
        if t >= job.window:
            planner.observe(Feedback(np.array(list(COMPUTE.values())) * workloads[t - job.window], np.zeros(2)))
        decision = planner.plan(batch)
        assert decision.workloads.tolist() == workloads[t]
        for worker in workers:
            positions = np.flatnonzero(decision.assignment == worker.membership.slot)
            assert worker.plans[t].positions.tolist() == positions.tolist()
