"""Budgets in a running dispatcher: measured ones, their replay, decisions that come late."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from esd.dispatcher.core.decision_log import IterationPlanned, JobOpened, Observed, read_decisions
from esd.dispatcher.simulator.decision_replay import replay_decisions
from esd.services.domain.batches import SampleBatch
from esd.services.domain.mechanisms import EsdOptions
from esd.services.runtime.metrics import REGISTRY
from esd.services.wire.jobs import job_of_json
from esd.services.wire.plans import digest_of
from tests.support.simple_clients import (
    POLL_SECONDS,
    Dispatcher,
    job_with,
    run_to_the_end,
    samples,
    state_when,
    stream,
    train_all,
)

BATCHES = [samples(8, seed=seed) for seed in range(20)]


def metric(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


@pytest.mark.parametrize(
    "options",
    [
        {"mechanism": "joint"},
        {"mechanism": "laia-adaptive"},
        {"mechanism": "esd", "mechanism_options": EsdOptions(auto_alpha=True)},
    ],
)
async def test_a_measured_budget_is_recorded_and_its_decisions_are_made_again(
    start_dispatcher: Any, tmp_path: Path, options: dict[str, Any]
) -> None:
    """The workers say that an iteration computes for half a second, so there is time for everything."""
    log = tmp_path / "decisions.jsonl"
    job = job_with(auto_budget=True, window=3, **options)
    await run_to_the_end(await start_dispatcher(decision_log=log), job, BATCHES)
    opened, *records = read_decisions(log)
    assert isinstance(opened, JobOpened)
    assert {each.necessary_seconds for each in records if isinstance(each, Observed)} == {0.5}
    efforts = [each.efforts for each in records if isinstance(each, IterationPlanned)]
    assert efforts[:3] == [[]] * 3  # nobody has reported yet
    assert all(efforts[3:])
    shown = REGISTRY.get_sample_value("esd_decision_budget_seconds")
    assert shown is not None
    assert 0 <= shown < 0.5  # less the rest of planning, which takes longer on a machine that stands still
    replay_decisions(lambda: read_decisions(log), job_of_json(opened.job), lambda: iter(BATCHES), digest_of)


async def test_decisions_that_workers_wait_for_are_late(start_dispatcher: Any) -> None:
    """With a window of 1 nothing is planned while workers train. All samples are there before."""
    job = job_with(mechanism="esd", window=1)
    dispatcher = await start_dispatcher(queued_batches=len(BATCHES))
    await dispatcher.client.create_job(job)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(dispatcher.client.submit(job.name, stream(BATCHES)))
        async with asyncio.timeout(60):
            while metric("esd_queued_samples") < 8 * len(BATCHES):  # noqa: ASYNC110 - nobody tells of it
                await asyncio.sleep(POLL_SECONDS)
        before = metric("esd_late_decisions_total")
        for slot in range(job.workers):
            worker = dispatcher.worker(f"edge-{slot}")
            await worker.register()
            tasks.create_task(worker.train())
    assert metric("esd_late_decisions_total") - before == len(BATCHES) - 1


async def test_a_slow_stream_makes_no_decision_late(dispatcher: Dispatcher) -> None:
    async def slowly() -> AsyncIterator[SampleBatch]:
        for t, batch in enumerate(BATCHES[:6]):
            await state_when(dispatcher.client, lambda state, t=t: state.iterations_confirmed == t)  # type: ignore[misc]
            yield batch

    job = job_with(mechanism="esd", window=1)
    await dispatcher.client.create_job(job)
    before = metric("esd_late_decisions_total")
    workers = [dispatcher.worker(f"edge-{slot}") for slot in range(job.workers)]
    for worker in workers:
        await worker.register()
    await train_all(dispatcher, job, workers, slowly())
    assert metric("esd_late_decisions_total") == before


async def test_the_degree_of_infrequency_of_each_feature_is_shown(dispatcher: Dispatcher) -> None:
    """Each of the 50 rows of a feature occurs less often than one of two workers trains 80 samples."""
    job = job_with(mechanism="laia-adaptive")
    await run_to_the_end(dispatcher, job, BATCHES)
    assert {metric("esd_feature_infrequency_ratio", feature=each.name) for each in job.features} == {1.0}
