"""`esd plans` prints each plan once, for people and as JSON Lines; the example counts the pushes for other workers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from typer.testing import CliRunner

from esd.cli.main import app
from esd.dispatcher.service.app import serve_dispatcher
from esd.dispatcher.service.settings import DispatcherSettings
from esd.services.clients.dispatcher import DispatcherClient
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.domain.plans import IterationPlan
from examples.watch_plans import pushes
from tests.support.simple_clients import Dispatcher, Worker, job_with, run_to_the_end, samples

ITERATIONS = 10


@pytest.fixture
async def dispatcher() -> AsyncIterator[Dispatcher]:
    settings = DispatcherSettings(metrics_port=None, grace_seconds=0)
    async with serve_dispatcher(settings) as served, AsyncDispatcherClient(served.address) as client:
        yield Dispatcher(served.address, client, asyncio.Event().wait)


async def printed(*arguments: str) -> list[str]:
    result = await asyncio.to_thread(CliRunner().invoke, app, ["plans", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


async def trained(dispatcher: Dispatcher) -> list[Worker]:
    return await run_to_the_end(dispatcher, job_with(), [samples(8 * ITERATIONS)])


def pushed(plan: IterationPlan) -> int:
    return len(plan.update_rows) + len(plan.update_gradients)


async def test_json_lines_have_the_plans_of_the_workers(dispatcher: Dispatcher) -> None:
    workers = await trained(dispatcher)
    lines = [
        json.loads(line) for line in await printed("--dispatcher", dispatcher.address, "--from", "0", "--json", "--ids")
    ]
    assert [(line["iteration"], line["stage"]) for line in lines] == [
        *((at, "iteration") for at in range(ITERATIONS)), (ITERATIONS, "end"),
    ]  # fmt: skip
    for line in lines[:-1]:
        for worker, shown in zip(workers, line["workers"], strict=True):
            plan = worker.plans[line["iteration"]]
            rows = {(moves["reason"], moves["gradients"]): moves for moves in shown["moves"]}
            pulled = rows.get(("pull", False), {"ids": []})
            assert pulled["ids"] == list(map(str, plan.pulls.ids.tolist()))
            assert sum(each["rows"] for (reason, _), each in rows.items() if reason == "update_push") == pushed(plan)


async def test_lines_for_people_name_the_workers(dispatcher: Dispatcher) -> None:
    workers = await trained(dispatcher)
    lines = await printed("--dispatcher", dispatcher.address, "--from", str(ITERATIONS - 1))
    at = ITERATIONS - 1
    assert lines[0] == f"iteration {at}, epoch {workers[0].plans[0].epoch}"
    for worker, other, line in zip(workers, reversed(workers), lines[1:3], strict=True):
        assert line.startswith(f"  {worker.name}  4 samples; {len(worker.plans[at].pulls)} pulls")
        assert f"update pushes ({other.name} " in line
    assert lines[3].startswith(f"end after {ITERATIONS} iterations")
    assert len(lines) == 6


async def test_the_example_counts_the_pushes_for_others(dispatcher: Dispatcher) -> None:
    workers = await trained(dispatcher)

    def watch() -> dict[tuple[str, str], int]:
        with DispatcherClient(dispatcher.address) as client:
            return dict(pushes(client, 0))

    counts = await asyncio.to_thread(watch)
    assert set(counts) == {("edge-0", "edge-1"), ("edge-1", "edge-0")}
    for (sender, _), rows in counts.items():
        (worker,) = [each for each in workers if each.name == sender]
        assert 0 < rows <= sum(map(pushed, worker.plans))
