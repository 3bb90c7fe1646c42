"""Shadow costs are the costs that the simulator computes for the same mechanisms."""

from __future__ import annotations

import asyncio
import logging
import threading
from dataclasses import replace
from typing import Any

import pytest

from esd.dispatcher.core.learned import Snapshot
from esd.dispatcher.core.planner import Planner
from esd.dispatcher.service.run import shadow
from esd.dispatcher.service.run.shadow import Shadows
from esd.dispatcher.service.settings import DispatcherSettings
from esd.dispatcher.simulator.simulate import simulate
from esd.native.engine import BatchIds
from esd.ps_server.service.app import parameter_server
from esd.ps_server.service.settings import ParameterServerSettings
from esd.run.results import training_result
from esd.services.domain.footprint import planned_bytes
from esd.services.domain.jobs import JobSpec
from esd.services.domain.mechanisms import EsdOptions, parse_mechanism
from esd.services.domain.state import ShadowCost
from esd.services.runtime.metrics import REGISTRY
from esd.services.runtime.settings import SettingsError, load
from tests.support.simple_clients import job_with, registration, run_to_the_end, samples, state_when

JOB = job_with(workers=2, batch_size=16, mechanism="esd")
WORKERS = [registration("edge-0", cache_rows=40), registration("edge-1", cache_rows=40)]
BATCHES = [samples(16, seed=seed, job=JOB) for seed in range(12)]
ROOM = 2**20  # bytes of all shadows
IDS = [BatchIds(*batch.id_columns) for batch in BATCHES]  # every test's shadows look at the same ones


def simulated(job: JobSpec, text: str, cache_rows: int) -> float:
    mechanism, options = parse_mechanism(text)
    planner = Planner(replace(job, mechanism=mechanism, mechanism_options=options), [1e6, 1e6], [cache_rows] * 2)
    return simulate(planner, BATCHES).cost_seconds


def counted(mechanism: str) -> float:
    return REGISTRY.get_sample_value("esd_shadow_transfer_cost_seconds_total", {"mechanism": mechanism}) or 0.0


@pytest.mark.parametrize("job", [JOB, replace(JOB, admit_afters=(2,))], ids=["all ids", "admission"])
async def test_shadow_costs_equal_the_simulator(
    start_dispatcher: Any, monkeypatch: pytest.MonkeyPatch, job: JobSpec
) -> None:
    monkeypatch.setattr(shadow, "_TOGETHER", 5)  # so that some batches are left over
    before = {mechanism: counted(mechanism) for mechanism in ("random", "laia", "laia:text", "esd:0")}
    dispatcher = await start_dispatcher(shadow_mechanisms=("random", "esd", "laia", "laia:text", "esd:0"))
    await run_to_the_end(dispatcher, job, BATCHES)
    state = await dispatcher.client.describe()
    assert [cost.mechanism for cost in state.shadow_costs] == list(before), "without the job's own"
    if not job.admit_afters:  # which leaves too few rows for a difference
        assert state.shadow_costs[-1].cost_seconds != pytest.approx(state.cost_seconds)
    for cost in state.shadow_costs:
        assert cost.cost_seconds == pytest.approx(simulated(job, cost.mechanism, 100))
        assert counted(cost.mechanism) - before[cost.mechanism] == pytest.approx(cost.cost_seconds)
        told = training_result(state)["shadow_costs"][cost.mechanism]
        assert told == {"iterations": len(BATCHES), "cost_seconds": cost.cost_seconds}


async def test_the_shadows_of_a_continued_job_begin_as_its_plans_do(start_dispatcher: Any) -> None:
    """With the versions of the rows that the first job trained, and with empty caches: its workers are others."""
    before, after = BATCHES[:5], BATCHES[5:]
    async with parameter_server(ParameterServerSettings(metrics_port=None, grace_seconds=0)) as server:
        dispatcher = await start_dispatcher(shadow_mechanisms=("random",))
        job = replace(JOB, checkpoint_every=100, parameter_servers=(server.address,))
        await run_to_the_end(dispatcher, job, before)
        await dispatcher.dismiss()
        await run_to_the_end(dispatcher, replace(job, first_iteration=5, stream="another"), after)
        state = await dispatcher.client.describe()
        await dispatcher.dismiss()
    planner = Planner(JOB, [1e6, 1e6], [100, 100])
    for batch in before:
        planner.plan(batch)
    _, snapshot = planner.checkpoint()
    links, caches = [1e6, 1e6], [100, 100]
    other = Planner(replace(JOB, mechanism="random"), links, caches, snapshot=Snapshot(snapshot.engine), warm=False)
    expected = sum(other.plan(batch).cost_seconds for batch in after)
    assert state.shadow_costs[0] == ShadowCost("random", len(after), pytest.approx(expected))


async def test_a_job_does_not_wait_long_for_a_slow_shadow(
    start_dispatcher: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    going_on = threading.Event()
    planned = shadow._plan
    monkeypatch.setattr(shadow, "_plan", lambda *args: going_on.wait() and planned(*args))
    monkeypatch.setattr(shadow, "_LAST_WAIT_SECONDS", 0.01)
    dispatcher = await start_dispatcher(shadow_mechanisms=("random",))
    try:
        await run_to_the_end(dispatcher, JOB, BATCHES)
        assert [cost.iterations for cost in (await dispatcher.client.describe()).shadow_costs] == [0]
    finally:
        going_on.set()
    await state_when(dispatcher.client, lambda state: state.shadow_costs[0].iterations == len(BATCHES))


async def test_none_are_computed_when_none_are_wanted(start_dispatcher: Any) -> None:
    dispatcher = await start_dispatcher(shadow_mechanisms=())
    await run_to_the_end(dispatcher, JOB, BATCHES[:2])
    assert (await dispatcher.client.describe()).shadow_costs == ()


async def test_shadows_that_do_not_fit_are_left_out_by_name(
    start_dispatcher: Any, caplog: pytest.LogCaptureFixture
) -> None:
    two = 2 * planned_bytes(JOB.tables, [100, 100])
    dispatcher = await start_dispatcher(shadow_mechanisms=("esd", "random", "hash", "laia"), shadow_bytes=two)
    await run_to_the_end(dispatcher, JOB, BATCHES[:2])
    state = await dispatcher.client.describe()
    assert [cost.mechanism for cost in state.shadow_costs] == ["random", "hash"], "the first ones that fit stay"
    assert state.shadows_left_out == ("laia",)
    assert training_result(state)["shadows_left_out"] == ["laia"]
    assert "no shadow costs of laia: caches of 200 rows" in caplog.text


async def until_planned(shadows: Shadows) -> tuple[ShadowCost, ...]:
    shadows.close()
    await asyncio.to_thread(shadows._thread.shutdown)
    return shadows.costs


async def test_a_batch_does_not_wait_for_others_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shadow, "_LONGEST_WAIT_SECONDS", 0.01)
    shadows = Shadows(("random",), ROOM)
    shadows.start(JOB, WORKERS)
    shadows.follow(0, BATCHES[0], IDS[0])
    async with asyncio.timeout(60):
        while not shadows.costs[0].iterations:  # noqa: ASYNC110 - costs are looked up, nobody tells of them
            await asyncio.sleep(0)
    shadows.close()


async def test_a_shadow_has_no_options_of_the_mechanism_in_force() -> None:
    job = replace(
        JOB, mechanism_options=EsdOptions(0.5, eviction_term=True), workload_limits=(4, 12), measured_links=True
    )
    shadows = Shadows(("laia",), ROOM)
    shadows.start(job, WORKERS)
    for iteration, batch in enumerate(BATCHES):
        shadows.follow(iteration, batch, IDS[iteration])
    (cost,) = await until_planned(shadows)
    assert cost.cost_seconds == pytest.approx(simulated(JOB, "laia", 40))


async def test_a_shadow_looks_ahead_as_its_mechanism_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two choices compare the costs of the next batch, which comes later, and never after the last one."""
    monkeypatch.setattr(shadow, "_TOGETHER", 5)
    shadows = Shadows(("laia", "laia-two-choices"), ROOM)
    shadows.start(JOB, WORKERS)
    for iteration, batch in enumerate(BATCHES):
        shadows.follow(iteration, batch, IDS[iteration])
    costs = {cost.mechanism: cost for cost in await until_planned(shadows)}
    assert {cost.iterations for cost in costs.values()} == {len(BATCHES)}
    for mechanism, cost in costs.items():
        assert cost.cost_seconds == pytest.approx(simulated(JOB, mechanism, 40))
    assert costs["laia"].cost_seconds != costs["laia-two-choices"].cost_seconds


async def test_a_batch_that_comes_again_counts_once() -> None:
    shadows = Shadows(("random",), ROOM)
    shadows.start(JOB, WORKERS)
    for iteration in (0, 1, 1, 0, 2):
        shadows.follow(iteration, BATCHES[iteration], IDS[iteration])
    (cost,) = await until_planned(shadows)
    assert cost.iterations == 3


async def test_a_shadow_that_missed_a_batch_ends(caplog: pytest.LogCaptureFixture) -> None:
    shadows = Shadows(("random",), ROOM)
    shadows.start(JOB, WORKERS)
    shadows.follow(0, BATCHES[0], IDS[0])
    with caplog.at_level(logging.WARNING):
        shadows.follow(2, BATCHES[2], IDS[2])
    assert await until_planned(shadows) == ()
    assert "no shadow costs any more" in caplog.text


async def test_shadows_that_fall_behind_end(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(shadow, "_FARTHEST_BEHIND", 2)
    shadows = Shadows(("random",), ROOM)
    shadows.start(JOB, WORKERS)
    with caplog.at_level(logging.WARNING):
        for iteration in range(3):  # nothing is awaited, so nothing is counted as planned
            shadows.follow(iteration, BATCHES[iteration], IDS[iteration])
    assert shadows.costs == ()
    assert "2 batches behind" in caplog.text
    assert await until_planned(shadows) == ()


async def test_a_cache_that_is_too_small_for_a_shadow_leaves_the_job_alone(caplog: pytest.LogCaptureFixture) -> None:
    shadows = Shadows(("random",), ROOM)
    shadows.start(JOB, [replace(worker, cache_rows=2) for worker in WORKERS])
    with caplog.at_level(logging.WARNING):
        shadows.follow(0, BATCHES[0], IDS[0])
        assert await until_planned(shadows) == ()
    assert "cache" in caplog.text


def test_names_come_from_one_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(DispatcherSettings).shadow_mechanisms == ("random", "laia", "hash")
    monkeypatch.setenv("ESD_DISPATCHER_SHADOW_MECHANISMS", "laia, esd")
    assert load(DispatcherSettings).shadow_mechanisms == ("laia", "esd")
    monkeypatch.setenv("ESD_DISPATCHER_SHADOW_MECHANISMS", "none")
    assert load(DispatcherSettings).shadow_mechanisms == ()
    monkeypatch.setenv("ESD_DISPATCHER_SHADOW_MECHANISMS", "lala")
    with pytest.raises(SettingsError, match=r"ESD_DISPATCHER_SHADOW_MECHANISMS.*lala.*known are random"):
        load(DispatcherSettings)
