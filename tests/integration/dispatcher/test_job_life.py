"""A job from its creation to its end, over gRPC."""

import asyncio
import math
import socket
from contextlib import aclosing
from dataclasses import replace

import numpy as np
import pytest

from esd.dispatcher.service.run import current_job as jobs
from esd.dispatcher.service.settings import DispatcherSettings
from esd.services.domain.batches import SampleBatch
from esd.services.domain.claimants import CLAIMANT_BYTES
from esd.services.domain.errors import FailedPrecondition, InvalidArgument, NotFound, ResourceExhausted, Unavailable
from esd.services.domain.plans import EndOfStream, FlushPlan, IterationPlan, Membership
from esd.services.domain.reports import FailureReport, FlushReport, TransferCounts, WorkerPhase
from esd.services.domain.state import JobPhase
from esd.services.domain.worker_set import WorkerSet
from esd.services.runtime.metrics import REGISTRY
from tests.support.command import esd
from tests.support.simple_clients import (
    JOB,
    Dispatcher,
    Worker,
    job_with,
    registration,
    run_to_the_end,
    samples,
    state_when,
    stream,
)


async def test_all_samples_are_trained_in_stream_order(dispatcher: Dispatcher) -> None:
    source = samples(35)  # k = 8: four whole batches and a rest of 3
    workers = await run_to_the_end(dispatcher, JOB, [source[:5], source[5:25], source[25:]])

    for slot, worker in enumerate(workers):
        assert worker.membership is not None
        assert replace(worker.membership, claimant=b"") == Membership(0, slot, JOB, WorkerSet(0b11))
        assert len(worker.membership.claimant) == CLAIMANT_BYTES
        assert [plan.iteration for plan in worker.plans] == [0, 1, 2, 3, 4]
        assert worker.flush is not None
        assert worker.end == EndOfStream(5)
    assert workers[0].membership.claimant == workers[1].membership.claimant
    for iteration, plans in enumerate(zip(*(worker.plans for worker in workers), strict=True)):
        check_partition(source[8 * iteration : 8 * iteration + 8], plans)
    assert [len(worker.plans[0].labels) for worker in workers] == [4, 4]
    assert sorted(len(worker.plans[4].labels) for worker in workers) == [1, 2]

    state = await dispatcher.client.describe()
    assert state.phase is JobPhase.FINISHED
    assert (state.samples_submitted, state.iterations_planned, state.iterations_confirmed) == (35, 5, 5)
    assert state.quality.loss == pytest.approx(math.log(2))
    assert state.quality.auc == 0.5
    moved = [worker.transfers for worker in state.workers]
    assert [t.miss_pull for t in moved] == [sum(len(p.pulls) for p in w.plans) for w in workers]
    assert [t.flush_push for t in moved] == [len(w.flush.rows) + len(w.flush.gradients) for w in workers]
    plans = [plan for worker in workers for plan in worker.plans]
    rows = sum(len(p.pulls) + len(p.update_rows) + len(p.evict_rows) for p in plans)
    gradients = sum(len(p.update_gradients) + len(p.evict_gradients) for p in plans)
    assert sum(t.miss_pull + t.update_push + t.evict_push for t in moved) == rows + gradients
    stateless = sum(int(p.stateless_pulls().sum()) for p in plans)
    moved_bytes = (rows - stateless) * JOB.table.row_transfer_bytes + stateless * JOB.table.value_transfer_bytes
    moved_bytes += gradients * JOB.table.gradient_transfer_bytes
    assert state.cost_seconds == pytest.approx(moved_bytes / 1e6)
    assert state.lookups - state.hits == sum(t.miss_pull for t in moved)
    assert 0 < state.decision_median_seconds <= state.decision_p99_seconds
    assert state.training_seconds > 0


def check_partition(batch: SampleBatch, plans: tuple[IterationPlan, ...]) -> None:
    """The workers' plans hold every sample of the batch once."""
    positions = np.concatenate([plan.positions for plan in plans])
    assert sorted(positions.tolist()) == list(range(len(batch)))
    for plan in plans:
        assert plan.batch_size == len(batch)
        np.testing.assert_array_equal(plan.unique_ids[plan.inverse], batch[plan.positions].ids)
        np.testing.assert_array_equal(plan.dense, batch.dense[plan.positions])
        np.testing.assert_array_equal(plan.labels, batch.labels[plan.positions])


async def test_empty_stream_ends_with_an_empty_flush(dispatcher: Dispatcher) -> None:
    workers = await run_to_the_end(dispatcher, JOB, [])
    for worker in workers:
        assert worker.plans == []
        assert len(worker.flush.rows) == len(worker.flush.gradients) == 0
        assert worker.end == EndOfStream(0)
    state = await dispatcher.client.describe()
    assert state.phase is JobPhase.FINISHED
    assert math.isnan(state.quality.loss)


async def test_one_job_at_a_time(dispatcher: Dispatcher) -> None:
    client = dispatcher.client
    assert await client.describe() is None
    with pytest.raises(NotFound, match="no job yet"):
        await dispatcher.worker("edge-0").register()
    assert await client.create_job(JOB)
    assert not await client.create_job(JOB)
    with pytest.raises(FailedPrecondition, match="job flights is waiting for workers, and one dispatcher runs one job"):
        await client.create_job(job_with(seed=8))
    await run_to_the_end(dispatcher, JOB, [samples(8)])

    late = dispatcher.worker("late")
    with pytest.raises(NotFound, match="no job takes workers: job flights is finished"):
        await late.register()
    assert await client.create_job(JOB)  # the same once more is a new job
    assert (await client.describe()).phase is JobPhase.WAITING_FOR_WORKERS


async def test_a_worker_between_jobs_waits_with_one_call_and_is_taken_as_soon_as_there_is_a_job(
    dispatcher: Dispatcher,
) -> None:
    await run_to_the_end(dispatcher, JOB, [samples(8)])
    refused = refused_registrations()
    registering = asyncio.create_task(dispatcher.client.register(registration("edge-0"), wait_for_job=20))
    await dispatcher.client.describe()  # answered after the registration has come
    assert await dispatcher.client.create_job(JOB)
    assert (await registering).lease_id
    assert refused_registrations() == refused


def refused_registrations() -> float:
    labels = {"method": "/esd.v1.Dispatcher/RegisterWorker", "code": "NOT_FOUND"}
    return REGISTRY.get_sample_value("grpc_server_handled_total", labels) or 0.0


async def test_a_worker_waits_no_longer_than_it_says(dispatcher: Dispatcher) -> None:
    with pytest.raises(NotFound, match="no job yet"):
        await dispatcher.client.register(registration("edge-0"), wait_for_job=0.05)


async def test_a_dispatcher_that_stops_lets_waiting_workers_go() -> None:
    current_job = jobs.CurrentJob(DispatcherSettings())
    waiting = asyncio.create_task(current_job.taking_workers(within=500))
    await asyncio.sleep(0)  # it waits by now
    await current_job.close()
    with pytest.raises(Unavailable, match="the dispatcher is stopping"):
        async with asyncio.timeout(60):
            await waiting


async def slot_of(worker) -> int:
    async with aclosing(worker.watch()) as messages:
        return (await anext(messages)).slot


async def test_slots_by_name(dispatcher: Dispatcher) -> None:
    await dispatcher.client.create_job(job_with(workers=3))
    workers = {name: dispatcher.worker(name) for name in ("edge-10", "edge-2", "box")}
    for worker in workers.values():
        await worker.register()
    assert [await slot_of(workers[name]) for name in ("box", "edge-2", "edge-10")] == [0, 1, 2]


async def test_places(dispatcher: Dispatcher) -> None:
    await dispatcher.client.create_job(job_with(workers=3))
    first, second, third, fourth = (dispatcher.worker(name) for name in ("b", "a", "c", "d"))
    await first.register()
    await second.register()
    repeated = await dispatcher.worker("b").register()
    assert repeated == first.lease
    assert await dispatcher.worker("b").register(instance="another") != repeated
    with pytest.raises(NotFound, match="no lease"):
        await anext(first.watch())
    await third.register()
    with pytest.raises(ResourceExhausted, match="all 3 worker slots of the job are taken, by a, b, c"):
        await fourth.register()
    assert (await dispatcher.worker("a").register()) == second.lease
    with pytest.raises(FailedPrecondition, match=r"worker a \(slot 0\) is training already, registered from a:7000"):
        await dispatcher.worker("a").register(instance="another")
    assert await slot_of(second) == 0


async def started(dispatcher: Dispatcher, *, batches: int = 1) -> tuple[Worker, Worker, asyncio.Task[int]]:
    """Two registered workers and a stream of whole batches that does not end."""
    await dispatcher.client.create_job(JOB)
    workers = dispatcher.worker("edge-0"), dispatcher.worker("edge-1")
    for worker in workers:
        await worker.register()
    source = samples(8 * batches)
    submit = asyncio.create_task(
        dispatcher.client.submit(JOB.name, stream(source[8 * i : 8 * i + 8] for i in range(batches)))
    )
    return *workers, submit


async def plans_of(worker: Worker, count: int) -> list[IterationPlan]:
    plans: list[IterationPlan] = []
    async for message in worker.watch():
        if isinstance(message, IterationPlan):
            plans.append(message)
        if len(plans) == count:
            break
    return plans


async def test_reports_confirm_in_order_and_once(dispatcher: Dispatcher) -> None:
    worker, other, submit = await started(dispatcher, batches=3)
    first, second = await plans_of(worker, 2)
    with pytest.raises(FailedPrecondition, match="reports iteration 1; the next one it has to report is 0"):
        await worker.report(second)
    await worker.report(first)
    await worker.report(first)  # a repetition changes nothing
    await worker.report(second)
    with pytest.raises(FailedPrecondition, match=r"reports iteration 2; .* is 2, and 2 are planned"):
        await worker.report(replace(second, iteration=2))
    state = await dispatcher.client.describe()
    assert [w.iterations for w in state.workers] == [2, 0]
    assert state.workers[0].transfers.miss_pull == len(first.pulls) + len(second.pulls)
    assert state.iterations_confirmed == 0

    (plan,) = await plans_of(other, 1)
    with pytest.raises(InvalidArgument, match="reports 3 samples of iteration 0, its plan has 4"):
        await other.report(plan, labels=np.zeros((3, 1), np.uint8), score_bins=np.zeros((3, 1), np.uint16))
    with pytest.raises(FailedPrecondition, match="reports the flush of iteration 2; job flights is running"):
        await other.send(FlushReport(2, TransferCounts(), 0))
    assert await submit == 24


async def test_flush_report_may_be_repeated(dispatcher: Dispatcher) -> None:
    worker, other, _ = await started(dispatcher)
    finished = asyncio.create_task(other.train())
    async for message in worker.watch():
        match message:
            case IterationPlan():
                await worker.report(message)
            case FlushPlan():
                for _ in range(2):
                    await worker.flushed(message)
                flush = message
    await finished
    assert [type(message) async for message in worker.watch(1)] == [Membership, EndOfStream]  # nothing to flush again
    state = await dispatcher.client.describe()
    assert state.workers[0].transfers.flush_push == len(flush.rows) + len(flush.gradients)


async def test_flush_comes_after_the_last_confirmation(dispatcher: Dispatcher) -> None:
    worker, other, submit = await started(dispatcher)
    order = []

    async def train() -> None:
        async for message in worker.watch():
            match message:
                case IterationPlan():
                    await worker.report(message)
                case FlushPlan():
                    order.append("flush")
                    await worker.flushed(message)

    training = asyncio.create_task(train())
    await submit  # the stream has ended
    for _ in range(20):
        assert (await dispatcher.client.describe()).phase is JobPhase.RUNNING
    order.append("last confirmation")
    await other.train()
    await training
    assert order == ["last confirmation", "flush"]


async def test_window_and_back_pressure(start_dispatcher) -> None:
    dispatcher = await start_dispatcher(queued_batches=3)
    await dispatcher.client.create_job(job_with(window=2))
    workers = [dispatcher.worker("edge-0"), dispatcher.worker("edge-1")]
    for worker in workers:
        await worker.register()
    drawn = 0

    async def endless():
        nonlocal drawn
        while True:
            yield samples(8, seed=drawn)
            drawn += 1

    submit = asyncio.create_task(dispatcher.client.submit(JOB.name, endless()))
    await state_when(dispatcher.client, lambda s: (s.iterations_planned, s.samples_submitted) == (2, (2 + 3) * 8))

    plans = [await plans_of(worker, 2) for worker in workers]
    await workers[0].report(plans[0][0])
    await workers[0].report(plans[0][1])
    assert (await dispatcher.client.describe()).iterations_planned == 2  # the slowest worker counts
    await workers[1].report(plans[1][0])
    await state_when(dispatcher.client, lambda s: (s.iterations_planned, s.samples_submitted) == (3, (3 + 3) * 8))
    assert drawn == 6  # taken in; one more is on its way
    submit.cancel()
    with pytest.raises(asyncio.CancelledError):
        await submit
    assert (await dispatcher.client.describe()).phase is JobPhase.RUNNING


async def test_a_parameter_server_that_does_not_answer_holds_up_nobody(dispatcher: Dispatcher, monkeypatch) -> None:
    """As behind a cut link: connections are taken, and nothing comes back."""
    async with asyncio.timeout(60):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = "{}:{}".format(*silent.getsockname())
            job = job_with(checkpoint_every=10, parameter_servers=(address,))
            attempts = [dispatcher.client.create_job(job) for _ in range(2)]
            with monkeypatch.context() as impatient:
                impatient.setattr(jobs, "_OPENING_SECONDS", 0.1)
                ends = await asyncio.gather(*attempts, return_exceptions=True)
            for end in ends:
                assert isinstance(end, Unavailable)
                assert "a parameter server does not answer" in str(end)
        assert await dispatcher.client.create_job(JOB)


async def test_a_loss_that_is_not_finite_fails_the_job_and_names_the_worker(dispatcher: Dispatcher) -> None:
    """Another epoch would not help, so there is none, though the job could recover."""
    await dispatcher.client.create_job(JOB)
    workers = [dispatcher.worker(name) for name in ("a", "b")]
    for worker in workers:
        await worker.register()
    failure = FailureReport("the loss of iteration 3 is nan: training diverged, lower the learning rate", 0, fatal=True)
    first, second = [await worker.attend() for worker in workers]
    assert isinstance(await anext(second), Membership)
    await second.report(failure)
    state = await dispatcher.client.describe()
    assert state.phase is JobPhase.FAILED
    assert state.failure == f"worker b (slot 1) cannot go on: {failure.cause}"
    with pytest.raises(FailedPrecondition, match="the loss of iteration 3 is nan"):
        [message async for message in first]


async def test_esd_status_shows_a_job_that_no_worker_has_come_to_yet(dispatcher: Dispatcher) -> None:
    await dispatcher.client.create_job(JOB)
    shown = await asyncio.to_thread(esd, "status", "--dispatcher", dispatcher.address)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.startswith("flights: waiting for workers\n")


async def test_a_worker_that_holds_an_iteration_up_is_named_once(start_dispatcher, caplog) -> None:
    dispatcher = await start_dispatcher(straggler_factor=2.0)
    worker, other, submit = await started(dispatcher, batches=9)
    for each, phase in ((worker, WorkerPhase.ALL_REDUCE), (other, WorkerPhase.COMPUTE)):
        each.lease = replace(each.held, heartbeat_seconds=0.02)
        each.phase = phase
    plans, others = worker.watch(), other.watch()
    client = dispatcher.client
    for _ in range(6):
        for each, messages in ((worker, plans), (other, others)):
            while not isinstance(plan := await anext(messages), IterationPlan):
                pass
            await each.report(plan)

    def named() -> list[str]:
        """Not of the iterations before, which a machine that stood still has held up."""
        return [record.message for record in caplog.records if "holds up iteration 6 " in record.message]

    async with asyncio.timeout(60):
        while not named():
            await client.describe()
    state = await client.describe()
    assert [each.late_iterations > 0 for each in state.workers] == [False, True]
    (line,) = named()
    assert "worker edge-1 (slot 1) holds up iteration 6 in phase compute: it takes longer than 1.0 s" in line
    assert state.phase is JobPhase.RUNNING
    submit.cancel()
