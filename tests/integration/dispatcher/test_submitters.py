"""Several submitters, each with a part of the stream: in spite of kills, the job is the job of the merged stream."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from esd.protos import dispatcher_pb2 as pb
from esd.protos import dispatcher_pb2_grpc
from esd.ps_server.service.app import parameter_server
from esd.ps_server.service.settings import ParameterServerSettings
from esd.services.clients.dispatcher import DispatcherClient
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import EsdError, FailedPrecondition, InvalidArgument, NotFound, Unavailable
from esd.services.domain.jobs import JobSpec
from esd.services.domain.sources import SourcePosition, Taken
from esd.services.domain.state import JobPhase
from esd.services.runtime.channel import channel
from esd.services.runtime.metrics import PART_WAIT_SECONDS, PART_WAITING_BYTES
from esd.services.runtime.settings import DEFAULT_MAX_MESSAGE_BYTES
from esd.services.wire.batches import encode_batch
from tests.support.simple_clients import POLL_SECONDS, Dispatcher, Worker, job_with, run_to_the_end, samples, state_when
from tests.support.stream_parts import merged

LENGTHS = (90, 35, 61)  # of the parts: the second and the third end early, within a turn
SECONDS = 60.0  # the longest wait

StartDispatcher = Callable[..., Awaitable[Dispatcher]]


def part_of(number: int) -> SampleBatch:
    return samples(LENGTHS[number], seed=10 + number)


def cut_up(part: SampleBatch, rng: np.random.Generator, first: int = 0) -> Iterator[SampleBatch]:
    """The batches of a submitter from a sample on, with their places: less or more than a turn."""
    while first < len(part):
        count = int(rng.integers(1, 9))
        yield replace(part[first : first + count], source=SourcePosition("its file", behind=first))
        first += count


def merged_by_hand(job: JobSpec) -> SampleBatch:
    rows = [[(number, row) for row in range(length)] for number, length in enumerate(LENGTHS)]
    begins = np.cumsum([0, *LENGTHS[:-1]])
    order = np.array([begins[number] + row for number, row in merged(rows, job.shares)])
    return SampleBatch.concatenate([part_of(number) for number in range(len(LENGTHS))])[order]


def trained_by(workers: list[Worker]) -> dict[int, dict[int, list[int]]]:
    """The ids of each sample by iteration and place in its batch. Samples that are trained twice must be equal."""
    trained: dict[int, dict[int, list[int]]] = {}
    for worker in workers:
        for plan in worker.plans:
            places = plan.positions.tolist()
            of_samples = plan.unique_ids[plan.inverse].reshape(len(places), -1).tolist()
            for place, ids in zip(places, of_samples, strict=True):
                assert trained.setdefault(plan.iteration, {}).setdefault(place, ids) == ids
    return trained


def expected(job: JobSpec) -> dict[int, dict[int, list[int]]]:
    ids = merged_by_hand(job).by_field.tolist()
    starts = range(0, len(ids), job.batch_size)
    return {t: dict(enumerate(ids[start : start + job.batch_size])) for t, start in enumerate(starts)}


async def test_three_submitters_are_one_that_merged_their_parts_by_hand(start_dispatcher: StartDispatcher) -> None:
    """Their threads come at random moments, and even the plans of all transfers are the same."""
    job = job_with(submitters=3)
    by_hand = await run_to_the_end(await start_dispatcher(), job_with(), [merged_by_hand(job)])
    dispatcher = await start_dispatcher()
    await dispatcher.client.create_job(job)
    counts = {}

    def submit(number: int) -> None:
        rng = np.random.default_rng(number)

        def slowly() -> Iterator[SampleBatch]:
            for batch in cut_up(part_of(number), rng):
                time.sleep(float(rng.random() * 0.01))
                yield batch

        with DispatcherClient(dispatcher.address) as client:
            counts[number] = client.submit(job.name, slowly(), part=number)

    submitters = [threading.Thread(target=submit, args=(number,)) for number in range(3)]
    for submitter in submitters:
        submitter.start()
    workers = [dispatcher.worker(f"edge-{slot}") for slot in range(job.workers)]
    async with asyncio.timeout(SECONDS):
        await asyncio.gather(*(worker.train() for worker in workers))
        await asyncio.gather(*(asyncio.to_thread(submitter.join) for submitter in submitters))
    assert counts == dict(enumerate(LENGTHS))
    assert trained_by(workers) == expected(job)
    for worker, other in zip(workers, by_hand, strict=True):
        plans = [
            (plan.pulls.ids.tolist(), plan.update_rows.ids.tolist(), plan.labels.tolist()) for plan in worker.plans
        ]
        assert plans == [
            (plan.pulls.ids.tolist(), plan.update_rows.ids.tolist(), plan.labels.tolist()) for plan in other.plans
        ]


class Restless:
    """Submits a part in calls that are cut off at random moments; each begins where the ones before were accepted."""

    def __init__(self, number: int, job: JobSpec) -> None:
        self.begins: list[int] = []
        self._number = number
        self._job = job
        self._rng = np.random.default_rng(20 + number)

    async def submit(self, client: Callable[[], AsyncDispatcherClient]) -> None:
        while True:
            call = asyncio.create_task(client().feed(self._job.name, self._read_from, part=self._number))
            await asyncio.wait([call], timeout=float(self._rng.random() * 0.1))
            call.cancel()
            with suppress(
                asyncio.CancelledError, Unavailable, NotFound, FailedPrecondition
            ):  # not yet cut off, or gone
                await call
                return

    def _read_from(self, taken: Taken) -> Iterator[SampleBatch]:
        self.begins.append(taken)
        assert taken.source == (SourcePosition("its file", behind=taken) if taken else None)
        yield from cut_up(part_of(self._number), self._rng, taken)


async def test_submitters_that_are_killed_and_come_back_lose_and_repeat_nothing(
    start_dispatcher: StartDispatcher, server: str
) -> None:
    dispatcher, job = await start_dispatcher(), job_with(submitters=3, parameter_servers=(server,), checkpoint_every=5)
    await dispatcher.client.create_job(job)
    workers = [dispatcher.worker(f"edge-{slot}") for slot in range(job.workers)]
    restless = [Restless(number, job) for number in range(3)]
    async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as tasks:
        for each in restless:
            tasks.create_task(each.submit(lambda: dispatcher.client))
        for worker in workers:
            tasks.create_task(worker.train())
    assert trained_by(workers) == expected(job)
    assert all(any(0 < begin < length for begin in each.begins) for each, length in zip(restless, LENGTHS, strict=True))


@pytest.mark.parametrize("after", [5, 11, 17])
async def test_a_dispatcher_that_takes_over_goes_on_in_the_same_turn(
    start_dispatcher: StartDispatcher, tmp_path: Path, after: int
) -> None:
    """The places of all parts come from the checkpoint and the log, and so do the parts that have ended before."""
    settings = ParameterServerSettings(metrics_port=None, grace_seconds=0, checkpoint_dir=tmp_path)
    async with parameter_server(settings) as served, asyncio.timeout(SECONDS):
        job = job_with(submitters=3, parameter_servers=(served.address,), checkpoint_every=4)
        first = await start_dispatcher()
        await first.client.create_job(job)
        clients, workers = [first.client], []
        restless = [Restless(number, job) for number in range(3)]
        submitting = [asyncio.create_task(each.submit(lambda: clients[-1])) for each in restless]
        workers = [first.worker(f"edge-{slot}") for slot in range(job.workers)]
        training = [asyncio.create_task(worker.train()) for worker in workers]
        await state_when(first.client, lambda state: state.checkpoint > 0 and state.iterations_confirmed >= after)
        await first.dismiss()
        await first.stop()
        await asyncio.gather(*training, return_exceptions=True)
        second = await start_dispatcher()
        await second.client.create_job(job)
        clients.append(second.client)
        again = [second.worker(f"edge-{slot}") for slot in range(job.workers)]
        await asyncio.gather(*(worker.train() for worker in again), *submitting)
        assert trained_by([*workers, *again]) == expected(job)
        state = await second.client.describe()
        assert state is not None
        assert state.resumed_from > 0
        assert state.samples_submitted == sum(LENGTHS)


async def test_other_samples_than_those_of_a_part_are_refused_in_every_life_of_the_dispatcher(
    start_dispatcher: StartDispatcher, tmp_path: Path
) -> None:
    """The name of the part comes from its call at first, then from the log, and then from a checkpoint."""
    settings = ParameterServerSettings(metrics_port=None, grace_seconds=0, checkpoint_dir=tmp_path)

    async def open_part(_: Taken) -> AsyncIterator[SampleBatch]:
        yield samples(12)
        await asyncio.Event().wait()

    async def refuses(dispatcher: Dispatcher) -> None:
        accepted = r"part 1 of job flights has 12 samples of its south, and these are its north: submit the former"
        with pytest.raises(FailedPrecondition, match=accepted):
            await dispatcher.client.feed(job.name, open_part, part=1, stream="its north")

    async with parameter_server(settings) as served, asyncio.timeout(SECONDS):
        job = job_with(submitters=2, parameter_servers=(served.address,), checkpoint_every=2)
        first = await start_dispatcher()
        await first.client.create_job(job)
        calls = [
            asyncio.create_task(first.client.feed(job.name, open_part, part=number, stream=stream))
            for number, stream in enumerate(("", "its south"))
        ]
        await state_when(first.client, lambda state: state.samples_submitted == 24)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await refuses(first)
        await first.stop()
        second = await start_dispatcher()
        await second.client.create_job(job)
        await refuses(second)
        training = [asyncio.create_task(second.worker(f"edge-{slot}").train()) for slot in range(job.workers)]
        await state_when(second.client, lambda state: state.checkpoint == 2)
        await second.dismiss()
        await second.stop()
        await asyncio.gather(*training, return_exceptions=True)
        third = await start_dispatcher()
        await third.client.create_job(job)
        await refuses(third)


async def test_a_submitter_is_refused_by_the_name_of_its_part(dispatcher: Dispatcher) -> None:
    job, client = job_with(submitters=2), dispatcher.client
    await client.create_job(job)
    with pytest.raises(InvalidArgument, match=r"has 2 parts \(submitters\), and the call names none: give part"):
        await client.submit(job.name, [])
    with pytest.raises(InvalidArgument, match=r"part is 2 \(--part\), and the stream of job flights has 2 parts"):
        await client.submit(job.name, [], part=2)
    with pytest.raises(InvalidArgument, match="part is -1, parts of a stream are numbered from 0"):
        await client.submit(job.name, [], part=-1)
    fed = asyncio.Event()

    async def never() -> Any:
        fed.set()
        await asyncio.Event().wait()
        yield

    first = asyncio.create_task(client.submit(job.name, never(), part=1))
    await fed.wait()
    with pytest.raises(FailedPrecondition, match="another Submit call feeds part 1 of job flights, whose samples have"):
        await client.submit(job.name, [], part=1)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)


def gauge(metric: Any, part: int) -> float:
    (family,) = metric.collect()
    return float({sample.labels["part"]: sample.value for sample in family.samples}[str(part)])


async def test_a_part_that_comes_early_waits_in_one_message(dispatcher: Dispatcher) -> None:
    """Its submitter gets no answer, and however much it sends, the dispatcher holds one message of it."""
    job = job_with(submitters=2)
    await dispatcher.client.create_job(job)
    batch = samples(1000, job=job)
    async with channel(dispatcher.address, DEFAULT_MAX_MESSAGE_BYTES, SECONDS) as raw, asyncio.timeout(SECONDS):
        call = dispatcher_pb2_grpc.DispatcherStub(raw).Submit()
        await call.write(pb.SubmitRequest(job=job.name, part=1))
        await call.read()

        async def send_without_end() -> None:
            position = 0
            while True:
                await call.write(pb.SubmitRequest(batch=encode_batch(batch), position=position))
                position += len(batch)

        sending, answer = asyncio.create_task(send_without_end()), asyncio.create_task(call.read())
        while not gauge(PART_WAITING_BYTES, 1):  # noqa: ASYNC110 - nothing is told when a message has come
            await asyncio.sleep(POLL_SECONDS)
        assert await asyncio.wait({sending, answer}, timeout=0.5) == (set(), {sending, answer})
        assert gauge(PART_WAITING_BYTES, 1) == batch.nbytes
        state = await dispatcher.client.describe()
        assert state is not None
        assert state.samples_submitted == 0
        sending.cancel()
        call.cancel()
        await asyncio.gather(sending, answer, return_exceptions=True)


async def test_a_part_whose_submitter_is_away_is_named_and_ends_the_job(start_dispatcher: StartDispatcher) -> None:
    """Other submitters and questions for the state of the job do not keep the job open for ever."""
    dispatcher = await start_dispatcher(standstill_warning_seconds=0.5, driver_seconds=3.0)
    job = job_with(submitters=2)
    await dispatcher.client.create_job(job)
    submission = asyncio.create_task(dispatcher.client.submit(job.name, [samples(6)], part=0))
    state = await state_when(dispatcher.client, lambda state: state.standstill != "")
    assert state.standstill == "the job waits for samples of part 1 of its stream, which nobody submits"
    assert gauge(PART_WAIT_SECONDS, 1) >= 0.5 > gauge(PART_WAIT_SECONDS, 0) == 0.0
    idle = asyncio.Event()

    async def nothing_yet() -> AsyncIterator[SampleBatch]:
        await idle.wait()
        yield samples(3)

    other = asyncio.create_task(dispatcher.client.submit(job.name, nothing_yet(), part=1))
    state = await state_when(dispatcher.client, lambda state: "sends none" in state.standstill)
    assert state.standstill == "the job waits for samples of part 1 of its stream, whose submitter sends none"
    other.cancel()
    await asyncio.gather(other, return_exceptions=True)
    state = await state_when(dispatcher.client, lambda state: state.phase is JobPhase.FAILED)
    assert state.failure.startswith("nobody has submitted part 1 of its stream in its turn for 3 s (the limit is ESD_")
    with pytest.raises(EsdError, match="nobody has submitted part 1"):
        await submission


async def test_a_part_that_comes_back_is_no_longer_named(start_dispatcher: StartDispatcher) -> None:
    dispatcher = await start_dispatcher(standstill_warning_seconds=0.3)
    job = job_with(submitters=2)
    await dispatcher.client.create_job(job)
    workers = [dispatcher.worker(f"edge-{slot}") for slot in range(job.workers)]
    async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as tasks:
        for worker in workers:
            tasks.create_task(worker.train())
        tasks.create_task(dispatcher.client.submit(job.name, [samples(16)], part=0))
        await state_when(dispatcher.client, lambda state: "part 1" in state.standstill)
        tasks.create_task(dispatcher.client.submit(job.name, [samples(16)], part=1))
    state = await dispatcher.client.describe()
    assert state is not None
    assert (state.phase, state.standstill, state.iterations_confirmed) == (JobPhase.FINISHED, "", 4)
