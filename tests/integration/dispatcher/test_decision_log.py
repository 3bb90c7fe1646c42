"""A run with measured feedback, recorded by the dispatcher, is planned again byte for byte."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from esd.dispatcher.core.decision_log import IterationPlanned, Observed, read_decisions
from esd.dispatcher.simulator.decision_replay import replay_decisions
from esd.services.domain.errors import FailedPrecondition, InvalidArgument
from esd.services.domain.plans import FlushPlan, IterationPlan, Membership
from esd.services.domain.reports import PhaseTimes
from esd.services.wire.jobs import job_of_json
from esd.services.wire.plans import digest_of
from tests.support.plan_messages import message_of
from tests.support.simple_clients import Dispatcher, Worker, job_with, registration, samples, stream

JOB = job_with(workload_limits=(1, 7), window=3, mechanism="joint", measured_links=True)
BATCHES = [samples(8, seed=seed) for seed in range(40)]
COMPUTE = {"edge-0": 0.1, "edge-1": 0.4}  # seconds per sample


async def train(worker: Worker) -> None:
    """Reports times of its own and a link that becomes slower and slower."""
    async for message in worker.watch():
        match message:
            case Membership():
                worker.membership = message
            case IterationPlan():
                worker.plans.append(message)
                phases = PhaseTimes(compute=COMPUTE[worker.name] * len(message.labels))
                speed = 1e6 / (1 + message.iteration * COMPUTE[worker.name])
                await worker.report(message, phases=phases, measured_bandwidth=speed)
            case FlushPlan():
                worker.flush = message
                await worker.flushed(message)


async def record(dispatcher: Dispatcher) -> list[Worker]:
    await dispatcher.client.create_job(JOB)
    workers = [dispatcher.worker(name) for name in COMPUTE]
    for worker in workers:
        worker.lease = await dispatcher.client.register(registration(worker.name, cache_rows=30))
    async with asyncio.TaskGroup() as tasks:
        for worker in workers:
            tasks.create_task(train(worker))
        tasks.create_task(dispatcher.client.submit(JOB.name, stream(BATCHES)))
    return workers


def digest(plans: Any) -> str:
    return digest_of(message_of(plan) for plan in plans)


def replay(log: Path, batches: list) -> Any:
    opened = next(read_decisions(log))
    return replay_decisions(lambda: read_decisions(log), job_of_json(opened.job), lambda: iter(batches), digest_of)


@pytest.fixture
async def recorded(start_dispatcher: Any, tmp_path: Path) -> tuple[Path, list[Worker]]:
    log = tmp_path / "decisions.jsonl"
    return log, await record(await start_dispatcher(decision_log=log))


async def test_a_replay_makes_the_same_plans_and_operations(recorded: tuple[Path, list[Worker]]) -> None:
    log, workers = recorded
    totals = replay(log, BATCHES)
    for worker in workers:
        plans, slot = worker.plans, worker.membership.slot
        operations = totals.operations
        assert operations.miss_pull[slot] == sum(len(plan.pulls) for plan in plans)
        assert operations.update_push[slot] == sum(len(p.update_rows) + len(p.update_gradients) for p in plans)
        assert operations.evict_push[slot] == sum(len(p.evict_rows) + len(p.evict_gradients) for p in plans)
        assert totals.flush_push[slot] == len(worker.flush.rows) + len(worker.flush.gradients)
    records = list(read_decisions(log))
    digests = [each.digest for each in records if isinstance(each, IterationPlanned)]
    assert digests == [digest([worker.plans[t] for worker in workers]) for t in range(len(BATCHES))]
    assert sum(isinstance(each, Observed) for each in records) == len(BATCHES) - JOB.window
    assert len({len(plan.labels) for plan in workers[0].plans}) > 1, "feedback has moved the workloads"


async def test_a_replay_notices_what_is_different(recorded: tuple[Path, list[Worker]]) -> None:
    log, _ = recorded
    other = [*BATCHES[:20], samples(8, seed=99), *BATCHES[21:]]
    with pytest.raises(FailedPrecondition, match="plans of iteration 20 differ from the decision log"):
        replay(log, other)
    with pytest.raises(InvalidArgument, match="ends before iteration 39"):
        replay(log, BATCHES[:39])
    lines = log.read_text().splitlines(keepends=True)
    faster = [line.replace('"bandwidths": [', '"bandwidths": [1') if '"observed"' in line else line for line in lines]
    log.write_text("".join(faster))
    with pytest.raises(FailedPrecondition, match="plans of iteration"):
        replay(log, BATCHES)


async def test_a_log_that_cannot_be_written_refuses_the_job(start_dispatcher: Any, tmp_path: Path) -> None:
    dispatcher = await start_dispatcher(decision_log=tmp_path / "nowhere" / "log")
    with pytest.raises(FailedPrecondition, match="cannot be written"):
        await dispatcher.client.create_job(JOB)


async def test_a_job_that_is_refused_for_its_log_leaves_no_connection_behind(
    server: str, start_dispatcher: Any, tmp_path: Path
) -> None:
    dispatcher = await start_dispatcher(decision_log=tmp_path / "nowhere" / "log")
    job = job_with(checkpoint_every=5, parameter_servers=(server,))
    with pytest.raises(FailedPrecondition, match="cannot be written"):
        await dispatcher.client.create_job(job)
    async with asyncio.timeout(60):
        while connections_to(server):  # noqa: ASYNC110 - gRPC tells nobody when it has hung up
            await asyncio.sleep(0.01)


def connections_to(address: str) -> int:
    """Counts those that this process has opened, as Linux lists them."""
    port = int(address.rpartition(":")[2])
    listed = "".join(Path(f"/proc/net/{name}").read_text() for name in ("tcp", "tcp6")).splitlines()
    return sum(line.split()[2].endswith(f":{port:04X}") and line.split()[3] == "01" for line in listed)
