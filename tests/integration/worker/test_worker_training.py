"""Worker processes that follow real plans train the model of a single machine."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import replace

import numpy as np
import pytest

from esd.dispatcher.core.planner import Planner
from esd.services.domain.dense_sums import parse_dense_sum
from esd.services.domain.jobs import ModelSpec
from esd.services.domain.plans import EndOfStream, IterationPlan
from esd.services.domain.reports import TransferCounts
from esd.services.domain.sync import OnDemand
from esd.services.domain.tables import ROW_KEY_BYTES, OptimizerKind, OptimizerSpec
from tests.integration.worker.small import small_job, small_stream, stored_model
from tests.support.cuttable_proxy import CuttableProxy
from tests.support.reference import train_reference

ITERATIONS = 20


def scripts_of(job, cache_rows, batches):
    """Plans of every worker, with their flush and end."""
    planner = Planner(job, [1e9] * job.workers, [cache_rows] * job.workers)
    decisions = [planner.plan(batch) for batch in batches]
    flush = planner.flush()
    return [
        [*(decision.plans[slot] for decision in decisions), flush[slot], EndOfStream(len(batches))]
        for slot in range(job.workers)
    ]


def planned(script):
    """The transfers of a script's iterations and of its flush."""
    plans = [message for message in script if isinstance(message, IterationPlan)]
    flush = script[-2]
    return Counter(
        miss_pull=sum(len(plan.pulls) for plan in plans),
        update_push=sum(len(plan.update_rows) + len(plan.update_gradients) for plan in plans),
        evict_push=sum(len(plan.evict_rows) + len(plan.evict_gradients) for plan in plans),
        flush_push=len(flush.rows) + len(flush.gradients),
    )


def asked_and_answered(script, table):
    """The bytes of a script's pulls, without the framing of messages: ids, versions, and rows or their values.

    Rows that were never trained are asked for and not sent.
    """
    plans = [message for message in script if isinstance(message, IterationPlan)]
    stateless = sum(int(plan.stateless_pulls().sum()) for plan in plans)
    whole = planned(script)["miss_pull"] - stateless
    unsent = initial_pulls(script) * (table.value_transfer_bytes - ROW_KEY_BYTES)
    return stateless * table.value_transfer_bytes + whole * table.row_transfer_bytes - unsent


def initial_pulls(script):
    """The pulls of a script's plans of rows that were never trained."""
    plans = [message for message in script if isinstance(message, IterationPlan)]
    return sum(int((plan.pulls.versions == 0).sum()) for plan in plans)


@pytest.mark.parametrize(
    ("kind", "workloads", "cache_rows", "shards", "max_norm"),
    [
        (OptimizerKind.SGD, (4, 4, 4), 18, 2, 0.0),
        (OptimizerKind.ROWWISE_ADAGRAD, (9, 3), 36, 1, 0.0),
        (OptimizerKind.ADAM, (6, 6), 26, 2, 0.0),
        (OptimizerKind.ROWWISE_ADAGRAD, (4, 4, 4), 18, 2, 0.3),
    ],
    ids=["sgd, 3 workers, 2 shards", "adagrad, unequal workers", "adam, 2 workers, 2 shards", "a limit of norms"],
)
async def test_workers_train_the_model_of_one_machine(
    start_servers, start_worker, serve_scripts, kind, workloads, cache_rows, shards, max_norm
):
    optimizer = OptimizerSpec(kind, learning_rate=0.05, max_norm=max_norm)
    job = small_job(await start_servers(shards), len(workloads), optimizer, workloads)
    batches = small_stream(ITERATIONS)
    scripts = scripts_of(job, cache_rows, batches)
    dispatcher, address = await serve_scripts(job, scripts)
    workers = await asyncio.gather(
        *(start_worker(address, f"worker-{j}", ESD_WORKER_CACHE_ROWS=str(cache_rows)) for j in range(job.workers))
    )
    for code, stderr in await asyncio.gather(*(worker.end() for worker in workers)):
        assert code == 0, stderr

    await assert_model_of_one_machine(job, batches)

    moved = [sum((r.transfers for r in reports), TransferCounts()) for reports in dispatcher.reports]
    for script, transfers in zip(scripts, moved, strict=True):
        plan = planned(script)
        assert {name: getattr(transfers, name) for name in plan} == dict(plan)
        assert plan["miss_pull"]
        assert plan["flush_push"]
        assert plan["evict_push"]
        assert transfers.initial_pull == initial_pulls(script) > 0
        moved = asked_and_answered(script, job.table)
        assert moved < transfers.bytes_pulled < moved + 60 * (plan["miss_pull"] + ITERATIONS)
    assert_reports_score_every_sample(dispatcher, batches)


async def test_connections_that_are_cut_at_any_byte_leave_the_model_as_it_is(
    start_servers, start_worker, serve_scripts
):
    """Unanswered requests are sent again: nothing is lost, and nothing is trained twice."""
    rng = np.random.default_rng(9)
    async with AsyncExitStack() as stack:
        servers = await start_servers(2)
        proxies = [await stack.enter_async_context(CuttableProxy.running(server)) for server in servers]
        job = small_job([proxy.address for proxy in proxies], 2, OptimizerSpec(learning_rate=0.05), (6, 6))
        batches = small_stream(ITERATIONS)
        scripts = scripts_of(job, 26, batches)
        dispatcher, address = await serve_scripts(job, scripts)
        workers = await asyncio.gather(
            *(start_worker(address, f"worker-{j}", ESD_WORKER_CACHE_ROWS="26") for j in range(job.workers))
        )
        for proxy in proxies:
            proxy.cut_after(int(rng.integers(1, 2000)), again=lambda: int(rng.integers(1, 5000)))
        for code, stderr in await asyncio.gather(*(worker.end() for worker in workers)):
            assert code == 0, stderr
        assert min(proxy.cuts for proxy in proxies) > 5
        for proxy in proxies:
            proxy.cut_after(None)
        await assert_model_of_one_machine(job, batches)
        assert_reports_score_every_sample(dispatcher, batches)


@pytest.mark.parametrize("way", ["server", "low-rank:2", "every:3"])
async def test_sums_over_connections_that_are_cut_give_the_same_bits(start_servers, start_worker, serve_scripts, way):
    """No worker ends its epoch, and none trains another gradient than without the cuts."""
    rng = np.random.default_rng(11)
    models = []
    for cuts in (False, True):
        async with AsyncExitStack() as stack:
            servers = await start_servers(2)
            proxies = [await stack.enter_async_context(CuttableProxy.running(server)) for server in servers]
            optimizer = OptimizerSpec(OptimizerKind.ADAM, learning_rate=0.05)
            job = small_job([proxy.address for proxy in proxies], 3, optimizer)
            job = replace(job, dense_sum=parse_dense_sum(way), model=ModelSpec("wdl", (16, 8), optimizer))
            dispatcher, address = await serve_scripts(job, scripts_of(job, 26, small_stream(ITERATIONS)))
            workers = await asyncio.gather(
                *(start_worker(address, f"worker-{j}", ESD_WORKER_CACHE_ROWS="26") for j in range(job.workers))
            )
            for proxy in proxies if cuts else []:
                proxy.cut_after(int(rng.integers(1, 5000)), again=lambda: int(rng.integers(1, 12_000)))
            for code, stderr in await asyncio.gather(*(worker.end() for worker in workers)):
                assert code == 0, stderr
                assert ("the stream of sums" in stderr) == cuts
            assert not dispatcher.failures
            for proxy in proxies:
                assert (proxy.cuts > 3) == cuts
                proxy.cut_after(None)
            rows, dense = await stored_model(job)
            models.append(
                (
                    {key: (version, row.tobytes()) for key, (version, row) in rows.items()},
                    {name: array.tobytes() for name, array in dense.items()},
                )
            )
    assert models[0] == models[1]


async def test_rows_between_workers_survive_connections_that_are_cut_at_any_byte(
    start_servers, start_worker, serve_scripts
):
    rng = np.random.default_rng(5)
    async with AsyncExitStack() as stack:
        job = replace(
            small_job(await start_servers(2), 3, OptimizerSpec(learning_rate=0.05)), sync=OnDemand(direct=True)
        )
        batches = small_stream(ITERATIONS)
        scripts = scripts_of(job, 26, batches)
        dispatcher, address = await serve_scripts(job, scripts)
        dispatcher.detour = True
        workers = await asyncio.gather(
            *(start_worker(address, f"worker-{j}", ESD_WORKER_CACHE_ROWS="26") for j in range(job.workers))
        )
        await dispatcher.until(lambda: len(dispatcher.registrations) == job.workers)
        proxies = []
        for slot, registration in enumerate(dispatcher.registrations):
            proxy = await stack.enter_async_context(CuttableProxy.running(registration.address))
            proxy.cut_after(int(rng.integers(1, 3000)), again=lambda: int(rng.integers(1, 3000)))
            proxies.append(proxy)
            async with dispatcher.changed:
                dispatcher.reached_at[slot] = proxy.address
                dispatcher.changed.notify_all()
        for code, stderr in await asyncio.gather(*(worker.end() for worker in workers)):
            assert code == 0, stderr
        assert min(proxy.cuts for proxy in proxies) > 2
        await assert_model_of_one_machine(job, batches)
        assert_reports_score_every_sample(dispatcher, batches)
        for slot, script in enumerate(scripts):
            plans = [message for message in script if isinstance(message, IterationPlan)]
            direct = sum(len(plan.direct_pushes) for plan in plans)
            moved = sum((report.transfers for report in dispatcher.iteration_reports(slot)), TransferCounts())
            assert moved.direct_push == direct > 0
            assert direct * job.table.row_transfer_bytes < moved.bytes_direct < moved.bytes_pushed


async def test_workers_that_cannot_reach_each_other_train_nothing(start_servers, start_worker, serve_scripts):
    job = replace(small_job(await start_servers(1), 2, OptimizerSpec()), sync=OnDemand(direct=True))
    dispatcher, address = await serve_scripts(job, scripts_of(job, 36, small_stream(3)))
    dispatcher.detour, dispatcher.reached_at = True, {0: "127.0.0.1:1", 1: "127.0.0.1:1"}
    workers = await asyncio.gather(
        *(start_worker(address, f"worker-{j}", ESD_WORKER_PEER_TIMEOUT="1") for j in range(2))
    )
    for slot, (code, stderr) in enumerate(await asyncio.gather(*(worker.end() for worker in workers))):
        assert code == 1
        assert "cannot reach the worker in slot" in stderr
        assert "127.0.0.1:1, to which rows go directly" in stderr
        assert not dispatcher.iteration_reports(slot)


async def assert_model_of_one_machine(job, batches):
    """The servers hold each row as often trained as it should be, and the model that one machine trains."""
    rows, dense = await stored_model(job)
    expected = train_reference(job, batches)
    ids = sorted(rows)
    assert ids == expected.ids.tolist()
    trained = Counter(x for batch in batches for x in np.unique(batch.ids).tolist())
    assert {x: rows[x][0] for x in ids} == dict(trained)
    values = np.stack([rows[x][1][: job.table.dimension] for x in ids])
    tolerance = 1e-3 if job.table.optimizer.kind is OptimizerKind.ADAM else 1e-4
    assert np.linalg.norm(values - expected.rows) <= tolerance * np.linalg.norm(expected.rows)
    for name, parameter in expected.dense.items():
        np.testing.assert_allclose(dense[name], parameter, rtol=10 * tolerance, atol=tolerance)


def assert_reports_score_every_sample(dispatcher, batches):
    for slot in range(len(dispatcher.scripts)):
        assert [report.iteration for report in dispatcher.iteration_reports(slot)] == list(range(len(batches)))
    reports = [report for slot in range(len(dispatcher.scripts)) for report in dispatcher.iteration_reports(slot)]
    labels = np.concatenate([report.labels for report in reports])
    assert labels.sum() == sum(batch.labels.sum() for batch in batches)
    assert sum(len(report.score_bins) for report in reports) == sum(map(len, batches))
    loss = sum(report.loss_sum for report in reports) / len(labels)
    assert 0.5 < loss < 1.0
    assert all(report.seconds >= report.phases.compute > 0 for report in reports if len(report.labels))
