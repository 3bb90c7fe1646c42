"""A submitter whose network falls silent comes again while the dispatcher still has its former call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace

import grpc
import numpy as np
import pytest

from esd.protos import dispatcher_pb2 as pb
from esd.protos import dispatcher_pb2_grpc
from esd.run.driver import drive
from esd.run.events import Event, Retrying
from esd.run.options import RunOptions
from esd.run.submitting import submit_part
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.clients.read_ahead import BATCHES_AHEAD
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import FailedPrecondition, Unavailable
from esd.services.domain.sources import Taken
from esd.services.runtime.channel import channel
from esd.services.wire.batches import encode_batch
from tests.integration.dispatcher.test_submitters import LENGTHS, cut_up, expected, part_of, trained_by
from tests.support.cuttable_proxy import CuttableProxy
from tests.support.simple_clients import JOB, Dispatcher, job_with, samples, state_when

SECONDS = 60.0  # the longest wait

StartDispatcher = Callable[..., Awaitable[Dispatcher]]


class Deserting:
    """Submits a part over a network that falls silent at random places, and comes again at once."""

    def __init__(self, number: int, proxy: CuttableProxy) -> None:
        self.desertions = 0
        self._number = number
        self._proxy = proxy
        self._rng = np.random.default_rng(30 + number)

    async def submit(self, job: str) -> int:
        async with AsyncDispatcherClient(self._proxy.address) as client:
            while True:
                try:
                    return await client.feed(job, self._read_from, part=self._number)
                except Unavailable:
                    self.desertions += 1

    async def _read_from(self, taken: Taken) -> AsyncIterator[SampleBatch]:
        for batch in cut_up(part_of(self._number), self._rng, taken):
            if self._rng.random() < 0.2:
                self._proxy.desert()
            yield batch


async def test_submitters_whose_networks_fall_silent_lose_and_repeat_nothing(
    start_dispatcher: StartDispatcher, server: str
) -> None:
    dispatcher, job = await start_dispatcher(), job_with(submitters=3, parameter_servers=(server,), checkpoint_every=5)
    await dispatcher.client.create_job(job)
    workers = [dispatcher.worker(f"edge-{slot}") for slot in range(job.workers)]
    async with AsyncExitStack() as stack, asyncio.timeout(SECONDS):
        submitters = [
            Deserting(part, await stack.enter_async_context(CuttableProxy.running(dispatcher.address)))
            for part in range(3)
        ]
        counts = asyncio.gather(*(each.submit(job.name) for each in submitters))
        await asyncio.gather(*(worker.train() for worker in workers))
        assert await counts == list(LENGTHS)
    assert trained_by(workers) == expected(job)
    assert all(each.desertions for each in submitters)


class DesertedStream:
    """Batches of samples, in the middle of which the network falls silent once."""

    def __init__(self, proxy: CuttableProxy) -> None:
        self._proxy = proxy
        self._loop = asyncio.get_running_loop()

    def __iter__(self) -> Iterator[SampleBatch]:
        for number in range(20):
            if number == 2 * BATCHES_AHEAD and not self._proxy.deserted:
                self._loop.call_soon_threadsafe(self._proxy.desert)
            yield samples(8, seed=number)


async def test_a_driver_whose_network_falls_silent_goes_on(dispatcher: Dispatcher, server: str) -> None:
    job = job_with(parameter_servers=(server,), checkpoint_every=5)
    await dispatcher.client.create_job(job)
    workers = [dispatcher.worker(f"edge-{slot}") for slot in range(job.workers)]
    events: list[Event] = []
    async with (
        CuttableProxy.running(dispatcher.address) as proxy,
        AsyncDispatcherClient(proxy.address) as client,
        asyncio.timeout(SECONDS),
    ):
        driving = drive(client, job, DesertedStream(proxy), events.append)
        final, *_ = await asyncio.gather(driving, *(worker.train() for worker in workers))
    assert (final.samples_submitted, [len(worker.plans) for worker in workers]) == (160, [20, 20])
    assert any(isinstance(event, Retrying) for event in events)


async def test_a_submitted_part_goes_on_while_its_former_call_waits_for_its_turn(dispatcher: Dispatcher) -> None:
    part = RunOptions(data="synthetic:zipf?samples=40&fields=3")
    job = job_with(submitters=2, features=part.open(8).features, dense_features=0)
    await dispatcher.client.create_job(job)
    workers = [dispatcher.worker(f"edge-{slot}") for slot in range(job.workers)]
    other, deserted = samples(40, job=job), asyncio.Event()
    events: list[Event] = []

    async def withheld() -> AsyncIterator[SampleBatch]:
        yield other[:8]
        await deserted.wait()
        yield other[8:]

    async with (
        CuttableProxy.running(dispatcher.address) as proxy,
        AsyncDispatcherClient(proxy.address) as client,
        asyncio.timeout(SECONDS),
        asyncio.TaskGroup() as tasks,
    ):
        for worker in workers:
            tasks.create_task(worker.train())
        tasks.create_task(dispatcher.client.submit(job.name, withheld(), part=0))
        submitted = tasks.create_task(submit_part(client, part, 1, events.append))
        await state_when(dispatcher.client, lambda state: state.samples_submitted == 16)
        proxy.desert()
        deserted.set()
        assert (await submitted)[1] == 40
    assert [len(worker.plans) for worker in workers] == [10, 10]
    assert sum(isinstance(event, Retrying) for event in events) == 1


async def test_another_client_is_refused_while_the_deserted_call_is_open(dispatcher: Dispatcher) -> None:
    await dispatcher.client.create_job(JOB)
    batch = samples(16)
    async with CuttableProxy.running(dispatcher.address) as proxy, AsyncDispatcherClient(proxy.address) as client:

        async def deserting() -> AsyncIterator[SampleBatch]:
            yield batch[:6]
            proxy.desert()
            yield batch[6:]

        begins: list[int] = []

        def rest(taken: Taken) -> list[SampleBatch]:
            begins.append(taken)
            return []

        with pytest.raises(Unavailable):
            await client.submit(JOB.name, deserting())
        with pytest.raises(FailedPrecondition, match="another Submit call feeds job flights"):
            await dispatcher.client.submit(JOB.name, [])
        assert await client.feed(JOB.name, rest) == 6
        assert begins == [6]


async def test_what_comes_late_on_the_former_call_is_not_taken_in(dispatcher: Dispatcher) -> None:
    job, batch = replace(JOB, window=8), samples(24)
    await dispatcher.client.create_job(job)

    def piece(start: int, end: int) -> pb.SubmitRequest:
        return pb.SubmitRequest(batch=encode_batch(batch[start:end]), position=start)

    async with channel(dispatcher.address) as raw, asyncio.timeout(SECONDS):
        stub = dispatcher_pb2_grpc.DispatcherStub(raw)
        former, later = stub.Submit(), stub.Submit()
        await former.write(pb.SubmitRequest(job=job.name, instance=7))
        await former.read()
        await former.write(piece(0, 6))
        assert (await former.read()).samples == 6
        await later.write(pb.SubmitRequest(job=job.name, instance=7))
        assert (await later.read()).samples == 6
        with pytest.raises(grpc.aio.AioRpcError, match="a later call of the same submitter feeds job flights") as ended:
            await former.read()
        assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
        await later.write(piece(6, 12))
        assert (await later.read()).samples == 12
        later.cancel()
