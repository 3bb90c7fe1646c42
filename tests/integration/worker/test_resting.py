"""Workers that rest while they have no samples: the model has the same bits as without rests."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import math
import sys
from asyncio.subprocess import PIPE
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import esd
from esd.dispatcher.core.planner import Planner
from esd.dispatcher.service.app import serve_dispatcher
from esd.dispatcher.service.settings import DispatcherSettings
from esd.dispatcher.simulator.link_bytes import LinkBytes
from esd.dispatcher.simulator.simulate import simulate
from esd.ps_server.service.app import parameter_server
from esd.ps_server.service.settings import ParameterServerSettings
from esd.run.driver import going_on
from esd.services.domain.batches import SampleBatch
from esd.services.domain.dense_sums import ServerSum
from esd.services.domain.jobs import JobSpec, ModelSpec
from esd.services.domain.sites import site_key
from esd.services.domain.tables import OptimizerKind, OptimizerSpec
from esd.services.runtime.metrics import REGISTRY
from esd.services.runtime.tasks import run_in
from esd.worker.service.epoch import Training
from esd.worker.service.session import WorkerSession
from esd.worker.service.settings import WorkerSettings
from esd.worker.training.device import prepare_device
from esd.worker.training.step import Step
from esd.worker.training.trainer import model_of_job, train
from tests.integration.worker.small import small_job, small_stream, stored_model
from tests.support.cuttable_proxy import CuttableProxy
from tests.support.server_client import ServerClient

NOTHING_ELSE = {"metrics_port": None, "grace_seconds": 0}
SITES = ("first", "second", "third")
LINK, CACHE_ROWS = 1e9, 64

# The sites of the samples of each iteration: every site pauses for long, and two of them more than once. The first
# member rests at the second checkpoint, and another one at the end.
ALTERNATING = (
    2 * [(0, 1, 2)] + 9 * [(0, 1)] + [(0, 2)] + 9 * [(1, 2)] + [(0,), (0, 1)] + 6 * [(0,)] + [(0, 1, 2)] + 5 * [(2,)]
)
FIXED = 20 * [(0, 1)]
CHECKPOINT_EVERY = 8
STATE = 2  # times the bytes of the gradients: a parameter and its moment


def batches_of(schedule: list[tuple[int, ...]]) -> list[SampleBatch]:
    """The batches of 12 samples of the small stream, of these sites in turn."""
    keys = np.array([site_key(site) for site in SITES], np.uint64)
    batches = zip(small_stream(len(schedule)), schedule, strict=True)
    return [replace(batch, sites=keys[np.resize(sites, len(batch))]) for batch, sites in batches]


def job_of(server: str, optimizer: OptimizerKind) -> JobSpec:
    job = small_job((server,), 3, OptimizerSpec(optimizer, learning_rate=0.01))
    model = ModelSpec("tests.support.running_model:Net", (600,), job.model.dense_optimizer)
    return replace(job, dense_sum=ServerSum(), sites=SITES, model=model, checkpoint_every=CHECKPOINT_EVERY)


@dataclass
class Run:
    """A job of three workers in threads of this process, whose parameter server is reached over links that can break.

    Attributes:
        then: the schedule of a second job, which goes on from the model of the first; empty: there is none.
        patience: seconds for which a worker waits for a service that is away, or for its own end.
        before: called in the thread of a worker, with its slot, before it trains a step; True: the worker leaves the
            job at once, and another one comes in its place.
        at_end: called with the address of the dispatcher when the job has ended.
    """

    schedule: list[tuple[int, ...]]
    then: list[tuple[int, ...]] = field(default_factory=list)
    rests: bool = True
    optimizer: OptimizerKind = OptimizerKind.ADAM
    before: Callable[[Run, int, Step], object] = lambda *_: None
    patience: float = 30.0
    at_end: Callable[[str], Awaitable[object]] | None = None
    rested: set[tuple[int, int]] = field(default_factory=set)  # slots and iterations
    proxy: CuttableProxy = field(init=False)
    loop: asyncio.AbstractEventLoop = field(init=False)
    job: JobSpec = field(init=False)
    state: esd.JobState = field(init=False)
    rows: dict[int, tuple[int, bytes]] = field(init=False)
    dense: dict[str, bytes] = field(init=False)
    saved: bytes = field(init=False)

    async def __call__(self) -> Run:
        self.loop = asyncio.get_running_loop()
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(parameter_server(ParameterServerSettings(**NOTHING_ELSE)))
            self.proxy = await stack.enter_async_context(CuttableProxy.running(server.address))
            settings = DispatcherSettings(**NOTHING_ELSE, rejoin_seconds=60.0)
            dispatcher = await stack.enter_async_context(serve_dispatcher(settings))
            client = await stack.enter_async_context(esd.AsyncDispatcherClient(dispatcher.address))
            self.job = job_of(self.proxy.address, self.optimizer)
            threads = stack.enter_context(ThreadPoolExecutor(len(SITES)))
            await self._train(self.schedule, client, dispatcher.address, threads)
            if self.then:
                self.job = await going_on(self.job)
                await self._train(self.then, client, dispatcher.address, threads)
            state = await client.describe()
            assert state is not None
            self.state = state
            if self.at_end is not None:
                await self.at_end(dispatcher.address)
            rows, dense = await stored_model(self.job)
            self.rows = {row: (version, values.tobytes()) for row, (version, values) in rows.items()}
            self.dense = {name: values.tobytes() for name, values in dense.items()}
            async with ServerClient(server.address, self.job.table) as store:
                self.saved = await store.get_part(len(self.schedule) + len(self.then), "dense")
        return self

    async def _train(
        self,
        schedule: list[tuple[int, ...]],
        client: esd.AsyncDispatcherClient,
        dispatcher: str,
        threads: ThreadPoolExecutor,
    ) -> None:
        await client.create_job(self.job)
        async with asyncio.timeout(100), asyncio.TaskGroup() as tasks:
            tasks.create_task(client.submit(self.job.name, batches_of(schedule)))
            for slot in range(len(SITES)):
                tasks.create_task(run_in(threads, self._take_part, slot, dispatcher))

    def _take_part(self, slot: int, dispatcher: str) -> None:
        prepare_device("cpu", 1)
        given = {
            "name": f"worker-{slot}",
            "site": SITES[slot],
            "link": LINK,
            "cache_rows": CACHE_ROWS,
            "retry_timeout": self.patience,
        }
        settings = WorkerSettings(dispatcher=dispatcher, **given, **NOTHING_ELSE)
        training = Training(model_of_job, torch.device("cpu"), may_rest=self.rests)
        while True:
            with WorkerSession(settings, training) as session:
                if not any(self._leaves(slot, step) for step in session):
                    return

    def _leaves(self, slot: int, step: Step) -> bool:
        if self.before(self, slot, step):
            return True
        parameters = {name: values.detach().clone() for name, values in step.model.named_parameters()}
        train(step)
        if all(torch.equal(values, parameters[name]) for name, values in step.model.named_parameters()):
            self.rested.add((slot, step.iteration))
        return False

    def parameters(self) -> list[NDArray[np.float32]]:
        """The parameters of the last checkpoint."""
        with np.load(io.BytesIO(self.saved)) as arrays:
            return [arrays[name] for name in arrays.files if name.startswith("parameter/")]

    def model(self) -> tuple[dict[int, tuple[int, bytes]], dict[str, bytes], str]:
        """The rows, the final model, and the last checkpoint's parameters, moments and buffers."""
        return self.rows, self.dense, hashlib.sha256(self.saved).hexdigest()


def resting_slots(schedule: list[tuple[int, ...]], moments: int) -> Iterator[tuple[int, int]]:
    """Yields slots and iterations: after as many iterations without samples as a return costs."""
    for slot in range(len(SITES)):
        idle = 0
        for iteration, sites in enumerate(schedule):
            if slot in sites:
                idle = 0
                continue
            if idle >= 1 + moments:
                yield slot, iteration
            idle += 1


@pytest.mark.parametrize(
    ("optimizer", "moments"),
    [(OptimizerKind.SGD, 0), (OptimizerKind.ROWWISE_ADAGRAD, 1), (OptimizerKind.ADAM, 2)],
    ids=lambda value: value.name.lower() if isinstance(value, OptimizerKind) else str(value),
)
async def test_the_model_has_the_bits_of_one_where_nobody_rests(optimizer, moments):
    """Its rows, its parameters, the moments of their optimizer, and the buffers that change."""
    run = await Run(ALTERNATING, optimizer=optimizer)()
    usual = await Run(ALTERNATING, rests=False, optimizer=optimizer)()
    assert run.rested == set(resting_slots(ALTERNATING, moments))
    assert usual.rested == set()
    assert run.model() == usual.model()


@pytest.mark.parametrize(
    ("schedule", "received", "given"),
    [(FIXED, 2, 20), (ALTERNATING[:15], 4 + 4 + STATE, 12 + STATE)],
    ids=["for good", "and returns"],
)
async def test_a_worker_that_rests_costs_its_link_next_to_nothing(schedule, received, given):
    """Links carry the simulated bytes: to the third worker so many times the gradients, and from the first so many."""
    run = await Run(schedule, optimizer=OptimizerKind.ROWWISE_ADAGRAD)()
    shapes = [values.shape for values in run.parameters()]
    link = LinkBytes(run.job, shapes)
    simulate(Planner(run.job, [LINK] * 3, [CACHE_ROWS] * 3, rests=True), batches_of(schedule), link=link)
    gradients = 4 * sum(map(math.prod, shapes))
    assert link.counted["dense", "down"][2] == received * gradients
    assert link.counted["dense", "up"][0] == given * gradients
    for worker in run.state.workers:
        down = worker.transfers.on_link("dense", "down")
        assert down == pytest.approx(link.counted["dense", "down"][worker.slot], rel=0.02)
    assert run.state.workers[0].transfers.on_link("dense", "up") == pytest.approx(given * gradients, rel=0.02)


async def test_streams_that_break_while_workers_rest_and_return_continue():
    """All connections of all workers to the parameter server break, before and in the midst of sums."""
    at = {(1, 6), (2, 7), (0, 9), (2, 11), (1, 11), (0, 17), (2, 18), (1, 22)}

    def cut(run: Run, slot: int, step: Step) -> None:
        if (slot, step.iteration) in at:
            run.loop.call_soon_threadsafe(run.proxy.cut_after, 3000 * slot)

    run = await Run(ALTERNATING, before=cut)()
    assert run.proxy.cuts >= len({iteration for _, iteration in at})
    assert run.rested == set(resting_slots(ALTERNATING, 2))
    assert not run.state.recoveries
    assert run.model() == (await Run(ALTERNATING, rests=False)()).model()


@pytest.mark.parametrize(
    ("victim", "iteration"),
    [(2, 9), (0, 20), (1, 20), (1, 30)],
    ids=["a worker that rests", "the first, whose checkpoint another one has stored", "one that trains", "at the end"],
)
async def test_a_job_that_goes_back_to_a_checkpoint_while_workers_rest_trains_the_same_model(victim, iteration):
    """All workers have the newest parameters then, and rest anew."""
    left: list[int] = []

    def leave(_: Run, slot: int, step: Step) -> bool:
        if (slot, step.iteration) != (victim, iteration) or left:
            return False
        left.append(slot)
        return True

    run = await Run(ALTERNATING, before=leave, patience=3.0)()
    assert left == [victim]
    assert run.state.recoveries
    assert run.model() == (await Run(ALTERNATING, rests=False)()).model()


async def test_a_job_goes_on_from_a_checkpoint_that_was_taken_while_the_first_workers_rested():
    """Its workers begin with the newest parameters, all of them, and rest anew."""
    stopped, then = ALTERNATING[:20], [(0, 1), (0, 2), *6 * [(1,)], (0, 1, 2)]
    run = await Run(stopped, then)()
    assert (0, len(stopped) - 1) in run.rested, "at the end of the first job, whose parameters another worker stores"
    assert run.rested == {
        *resting_slots(stopped, 2),
        *((slot, len(stopped) + iteration) for slot, iteration in resting_slots(then, 2)),
    }
    assert run.model() == (await Run(stopped, then, rests=False)()).model()


def in_slots(metric: str) -> list[float]:
    """The values of a metric that the dispatcher in this process has for each worker."""
    return [REGISTRY.get_sample_value(metric, {"worker": str(slot)}) or 0.0 for slot in range(len(SITES))]


async def test_the_status_the_page_and_a_metric_name_the_worker_that_rests():
    seen: dict[str, list[object]] = {}

    def look(_: Run, slot: int, step: Step) -> None:
        if (slot, step.iteration) == (0, len(FIXED) - 1):
            seen["metric"] = in_slots("esd_worker_rests")

    async def ask(dispatcher: str) -> None:
        async with esd.AsyncDispatcherClient(dispatcher) as client:
            page = json.loads(await client.describe_page("job"))
        seen["page"] = [worker["rests"] for worker in page["workers"]]
        command = (sys.executable, "-m", "esd.cli", "status", "--dispatcher", dispatcher)
        process = await asyncio.create_subprocess_exec(*command, "--json", stdout=PIPE)
        told, _ = await process.communicate()
        seen["status"] = [worker["rests"] for worker in json.loads(told)["workers"]]
        process = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
        table, _ = await process.communicate()
        seen["table"] = [", rests" in line for line in table.decode().splitlines() if "worker-" in line]

    run = await Run(FIXED, before=look, at_end=ask)()
    assert [worker.rests for worker in run.state.workers] == [False, False, True]
    for told in ("metric", "page", "status", "table"):
        assert seen[told] == [False, False, True], told
    assert in_slots("esd_worker_rests") == [0.0, 0.0, 0.0], "the job has ended"


async def test_a_metric_counts_the_returns_of_each_worker():
    before = in_slots("esd_worker_returns_total")
    await Run(ALTERNATING)()
    rested = set(resting_slots(ALTERNATING, 2))
    returns = [
        sum(slot in sites and (slot, iteration - 1) in rested for iteration, sites in enumerate(ALTERNATING))
        for slot in range(len(SITES))
    ]
    assert min(returns) > 0
    assert [
        after - earlier for after, earlier in zip(in_slots("esd_worker_returns_total"), before, strict=True)
    ] == returns
