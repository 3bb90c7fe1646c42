"""The figures on the page equal the training of a first, a continued, a bursty and a recovered job."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from esd.dispatcher.service.app import serve_dispatcher
from esd.dispatcher.service.settings import DispatcherSettings
from esd.ps_server.service.app import parameter_server
from esd.ps_server.service.settings import ParameterServerSettings
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.domain.jobs import JobSpec
from esd.services.domain.plans import EndOfStream, FlushPlan, IterationPlan, Membership
from esd.services.domain.state import JobState
from tests.support.browser import Browser, chromium
from tests.support.simple_clients import Dispatcher, Worker, job_with, samples, state_when, stream, train_all

ITERATIONS = 30
PAUSE_SECONDS = 0.2  # before each burst of confirmations
BURST = 5  # confirmations
UNITS = {"": 1.0, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
ROUNDED = 0.01  # the page shows three significant digits

# The values of a chart, as it shows them under the pointer: [[iteration, text of its first series]].
HOVER = """(id => {
  const svg = document.querySelector(`#${id} svg`), box = svg.getBoundingClientRect(), found = new Map();
  for (let x = 0; x < box.width; x++) {
    svg.dispatchEvent(new PointerEvent("pointermove", { clientX: box.left + x, clientY: box.top + 20 }));
    const [, value, , iteration] = svg.lastChild.textContent.match(/^(?:(.*) at|(iteration)) (.*)$/);
    found.set(iteration, value ?? document.querySelector(`#${id} .key b`).innerText);
  }
  return [...found];
})"""


def loss_of(iteration: int) -> float:
    """The mean loss that workers report of an iteration."""
    return 1 + iteration / 100


class PlainWorker(Worker):
    """Confirms each plan at once."""

    async def confirm(self, plan: IterationPlan) -> None:
        await self.report(plan, loss_sum=len(plan.labels) * loss_of(plan.iteration))

    async def confirm_rest(self) -> None:
        """Confirms the plans that are not confirmed yet, before a flush."""

    async def train_epoch(self) -> None:
        async for message in self.watch():
            match message:
                case Membership():
                    self.membership = message
                case IterationPlan():
                    self.plans.append(message)
                    await self.confirm(message)
                case FlushPlan():
                    await self.confirm_rest()
                    await self.flushed(message)
                case EndOfStream():
                    self.end = message


class BurstyWorker(PlainWorker):
    """Confirms its plans in bursts of up to BURST, as a worker does whose link stalls."""

    unconfirmed: tuple[IterationPlan, ...] = ()

    async def confirm(self, plan: IterationPlan) -> None:
        self.unconfirmed += (plan,)
        if len(self.unconfirmed) == BURST:
            await self.confirm_rest()

    async def confirm_rest(self) -> None:
        if self.unconfirmed:
            await asyncio.sleep(PAUSE_SECONDS)  # the stall; nothing waits for it
        for plan in self.unconfirmed:
            await super().confirm(plan)
        self.unconfirmed = ()


@dataclass
class Trained:
    """A job that was trained to its end.

    Attributes:
        job: the job.
        plans: the plans that its model is made of, by slot and iteration.
    """

    job: JobSpec
    plans: dict[int, dict[int, IterationPlan]]

    @classmethod
    def by(cls, job: JobSpec, workers: Iterable[Worker]) -> Trained:
        plans: dict[int, dict[int, IterationPlan]] = {}
        for worker in workers:
            assert worker.membership is not None
            plans.setdefault(worker.membership.slot, {}).update({plan.iteration: plan for plan in worker.plans})
        return cls(job, plans)

    def operations(self, slot: int) -> float:
        """Returns the operations per iteration of one worker."""
        plans = self.plans[slot].values()
        moved = ("pulls", "update_rows", "update_gradients", "evict_rows", "evict_gradients")
        return sum(len(getattr(plan, name)) for plan in plans for name in moved) / len(plans)


@pytest.fixture
async def dispatcher() -> AsyncIterator[Dispatcher]:
    settings = DispatcherSettings(
        metrics_port=None, page_port=0, lease_seconds=3, rejoin_seconds=600, grace_seconds=0,
        shadow_mechanisms=("laia",),
    )  # fmt: skip
    async with serve_dispatcher(settings) as served, AsyncDispatcherClient(served.address) as client:
        yield Dispatcher(served.address, client, asyncio.Event().wait, served.page_address)


@pytest.fixture
async def server() -> AsyncIterator[str]:
    async with parameter_server(ParameterServerSettings(metrics_port=None, grace_seconds=0)) as served:
        yield served.address


async def train(
    dispatcher: Dispatcher, job: JobSpec, iterations: int = ITERATIONS, kind: type[Worker] = PlainWorker
) -> Trained:
    await dispatcher.client.create_job(job)
    workers = [kind(dispatcher.client, f"edge-{slot}") for slot in range(job.workers)]
    for worker in workers:
        await worker.register()
    await train_all(dispatcher, job, workers, stream(samples(8, seed=seed, job=job) for seed in range(iterations)))
    for worker in workers:
        await worker.leave()
    return Trained.by(job, workers)


async def first(dispatcher: Dispatcher, job: JobSpec) -> Trained:
    return await train(dispatcher, job)


async def continued(dispatcher: Dispatcher, job: JobSpec) -> Trained:
    await train(dispatcher, job)
    return await train(dispatcher, replace(job, seed=9, first_iteration=ITERATIONS), 12)


async def bursty(dispatcher: Dispatcher, job: JobSpec) -> Trained:
    return await train(dispatcher, replace(job, window=BURST + 1, checkpoint_every=0), kind=BurstyWorker)


async def recovered(dispatcher: Dispatcher, job: JobSpec) -> Trained:
    """One worker goes at iteration 13, and another one takes its place at the checkpoint of iteration 10."""
    lost = asyncio.Event()

    async def source() -> AsyncIterator[Any]:
        for seed in range(ITERATIONS):
            if seed == 13:
                await lost.wait()
            yield samples(8, seed=seed, job=job)

    await dispatcher.client.create_job(job)
    async with AsyncDispatcherClient(dispatcher.address) as other:
        stays, goes, comes = (
            PlainWorker(client, name) for client, name in ((dispatcher.client, "a"), (other, "b"), (other, "b"))
        )
        training = [asyncio.create_task(each.train()) for each in (stays, goes)]
        submission = asyncio.create_task(dispatcher.client.submit(job.name, source()))
        await state_when(dispatcher.client, lambda state: (state.checkpoint, state.iterations_confirmed) == (10, 13))
        training[1].cancel()
        await goes.leave()
        await state_when(dispatcher.client, lambda state: len(state.workers) == 1)
        training[1] = asyncio.create_task(comes.train())
        lost.set()
        await submission
        await asyncio.gather(*training)
        for worker in (stays, comes):
            await worker.leave()
    return Trained.by(job, (goes, stays, comes))


def amount(text: str) -> float:
    """Returns a figure of the page in its base unit."""
    value, _, unit = text.partition(" ")
    return float(value.replace(",", "")) * UNITS[unit]


async def chart(browser: Browser, name: str) -> list[tuple[int, float]]:
    shown = await browser.run(f"{HOVER}({json.dumps(name)})")
    return [(int(iteration.replace(",", "")), amount(value)) for iteration, value in shown]


async def texts(browser: Browser, selector: str) -> list[str]:
    found: list[str] = await browser.run(f"[...document.querySelectorAll('{selector}')].map(e => e.innerText)")
    return found


@pytest.mark.parametrize("kind", [first, continued, bursty, recovered])
async def test_every_figure_is_that_of_the_training(
    kind: Any, dispatcher: Dispatcher, server: str, tmp_path: Path
) -> None:
    trained = await kind(dispatcher, job_with(parameter_servers=(server,), checkpoint_every=10))
    count = len(trained.plans[0])
    job = trained.job
    state = await state_when(
        dispatcher.client, lambda state: [cost.iterations for cost in state.shadow_costs] == [count]
    )
    assert [len(plans) for plans in trained.plans.values()] == [count, count]
    async with chromium(tmp_path) as browser:
        await browser.open(f"http://{dispatcher.page_address}/", width=1280, height=900)
        await browser.until("document.getElementById('phase').textContent === 'finished'")
        document = await browser.run("fetch('/state.json').then(answer => answer.json())")
        assert document["iterations_confirmed"] - document["job"]["first_iteration"] == count
        assert document["samples"] == job.batch_size * count
        await check_tiles(browser, document["history"], job, count, state.training_seconds)
        if kind is bursty:
            most = job.batch_size * count / (PAUSE_SECONDS * count / BURST)
            assert (await tiles(browser))["Throughput"][0] <= most * (1 + ROUNDED)
        await check_costs(browser, state, count)
        await check_workers(browser, trained)
        await check_charts(browser, document["history"], state)
        assert browser.complaints == []


async def tiles(browser: Browser) -> dict[str, tuple[float, str]]:
    """Returns the value and the line below it of each tile."""
    names, values, lines = [await texts(browser, f".tile .{part}") for part in ("name", "value", "sub")]
    numbers = (value.removesuffix("samples/s").strip() for value in values)
    shown = zip(names, numbers, lines, strict=True)
    return {name.capitalize(): (amount(number), line) for name, number, line in shown if name.lower() in MEASURED}


MEASURED = ("iterations", "throughput")


async def check_tiles(
    browser: Browser, history: dict[str, list[Any]], job: JobSpec, count: int, seconds: float
) -> None:
    """Compares with the latest ten seconds of the last epoch, or with all of it where it is younger."""
    shown = await tiles(browser)
    assert shown["Iterations"][0] == count
    assert "0 planned ahead" in shown["Iterations"][1]
    start = max(at for at, begins in enumerate(history["begins"]) if begins)
    end = history["seconds"][-1]
    while start + 1 < len(history["seconds"]) and history["seconds"][start + 1] <= end - 10:
        start += 1
    passed = history["samples"][-1] - history["samples"][start]
    assert passed == job.batch_size * (history["iterations"][-1] - history["iterations"][start])
    assert shown["Throughput"][0] == pytest.approx(passed / (end - history["seconds"][start]), rel=ROUNDED)
    if sum(history["begins"]) == 1 and seconds < 10:
        assert shown["Throughput"][0] == pytest.approx(job.batch_size * count / seconds, rel=ROUNDED)


async def check_costs(browser: Browser, state: JobState, count: int) -> None:
    shown = [amount(text) for text in await texts(browser, "#costs .amount")]
    expected = [state.cost_seconds, *(cost.cost_seconds for cost in state.shadow_costs)]
    assert shown == pytest.approx([seconds / count for seconds in expected], rel=ROUNDED)


async def check_workers(browser: Browser, trained: Trained) -> None:
    rows = await browser.run(
        "[...document.querySelectorAll('#workers tbody tr')].map(row => [...row.children].map(e => e.innerText))"
    )
    assert len(rows) == trained.job.workers
    for slot, row in enumerate(rows):
        count = len(trained.plans[slot])
        assert f"slot {slot}, {count} iterations" in row[0]
        assert amount(row[4].strip()) == pytest.approx(trained.operations(slot), rel=ROUNDED)
        pulled = sum(16 * len(plan.pulls) for plan in trained.plans[slot].values()) / count
        assert row[5].startswith(f"↓ {pulled:.3g} B")
        assert amount(row[6].strip()) == pytest.approx(0.5, rel=ROUNDED)


async def check_charts(browser: Browser, history: dict[str, list[Any]], state: JobState) -> None:
    """Compares the means of charts with the means of the training, and each loss with its iterations.

    An epoch that was lost shows the iterations up to the checkpoint only.
    """
    starts = [at for at, begins in enumerate(history["begins"]) if begins]
    epochs = list(zip(starts, [*(at - 1 for at in starts[1:]), len(history["begins"]) - 1], strict=True))
    counted = [[history["iterations"][at] for at in epoch] for epoch in epochs]
    assert list(itertools.chain(*counted))[1:-1:2] == list(itertools.chain(*counted))[2:-1:2], "each counts once"
    assert (counted[0][0], counted[-1][1]) == (state.job.first_iteration, state.iterations_confirmed)

    seconds = sum(history["seconds"][end] - history["seconds"][start] for start, end in epochs)
    assert await mean_of(browser, "times", state) == pytest.approx(seconds / trained_of(state), rel=0.02)
    # Costs are those of planned iterations, of which some are ahead.
    assert await mean_of(browser, "cost", state) == pytest.approx(state.cost_seconds / trained_of(state), rel=0.25)
    shown = await chart(browser, "loss")
    at = [state.job.first_iteration, *(iteration for iteration, _ in shown)]
    assert at[-1] == state.iterations_confirmed
    means = [sum(map(loss_of, range(since, to))) / (to - since) for since, to in itertools.pairwise(at)]
    assert [value for _, value in shown] == pytest.approx(means, rel=ROUNDED)


def trained_of(state: JobState) -> int:
    return state.iterations_confirmed - state.job.first_iteration


async def mean_of(browser: Browser, name: str, state: JobState) -> float:
    """Returns the mean of a chart, each value weighted by the iterations for which it is shown."""
    shown = await chart(browser, name)
    at = [state.job.first_iteration, *(iteration for iteration, _ in shown)]
    assert at == sorted(set(at))
    area = sum(value * (to - since) for (_, value), (since, to) in zip(shown, itertools.pairwise(at), strict=True))
    return area / (at[-1] - at[0])
