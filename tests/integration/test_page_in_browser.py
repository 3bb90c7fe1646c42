"""The page of a job in a real browser, wide and narrow, light and dark."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from esd.dispatcher.service.app import serve_dispatcher
from esd.dispatcher.service.settings import DispatcherSettings
from esd.ps_server.service.app import parameter_server
from esd.ps_server.service.settings import ParameterServerSettings
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.domain.batches import SampleBatch
from esd.services.domain.state import Evaluation, Quality, Ranking
from esd.services.domain.sync import Bounded
from testbed.free_port import free_port
from tests.support.browser import Browser, chromium
from tests.support.simple_clients import Dispatcher, Worker, job_with, run_to_the_end, samples, state_when

DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 360, "height": 780, "touch": True}
JOB = job_with(workers=4, batch_size=32, name="flights")
NO_NOTICE = "document.getElementById('notice').hidden"
NOTHING = "\N{EN DASH}"
ALL_WORKERS = "document.querySelectorAll('#workers tbody tr').length === 4"


def evaluation(iteration: int, auc: float) -> Evaluation:
    """Of two labels, of which the second has no AUC."""
    return Evaluation(iteration, (Quality(0.5, auc, 0.9, 1.1), Quality(0.25, math.nan, math.nan, 0.8)))


@pytest.fixture
async def browser(tmp_path: Path) -> AsyncIterator[Browser]:
    async with chromium(tmp_path) as opened:
        yield opened


@pytest.fixture
async def dispatcher() -> AsyncIterator[Dispatcher]:
    settings = DispatcherSettings(metrics_port=None, page_port=0, grace_seconds=1.0)
    async with serve_dispatcher(settings) as served, AsyncDispatcherClient(served.address) as client:
        yield Dispatcher(served.address, client, asyncio.Event().wait, served.page_address)


async def test_a_job_from_its_start_to_its_end(dispatcher: Dispatcher, browser: Browser) -> None:
    await browser.open(f"http://{dispatcher.page_address}/", **DESKTOP)
    await browser.until("document.getElementById('notice').textContent.startsWith('No job yet')")
    await dispatcher.client.create_job(JOB)
    await browser.until("document.getElementById('notice').textContent.startsWith('0 of 4 workers')")

    await run_to_the_end(dispatcher, JOB, [samples(640, job=JOB)])
    await browser.until(f"document.getElementById('phase').textContent === 'finished' && {NO_NOTICE}")
    text = await browser.run("document.body.innerText")
    for expected in ("random dispatch of wdl to 4 workers", "edge-3", "8 Mbit/s", "0.6931", "0.5000", "500 ms"):
        assert expected in text
    assert await browser.run("document.querySelectorAll('.chart path.series').length") == 5
    assert await browser.run(ALL_WORKERS)
    assert await browser.run("document.getElementById('labels').hidden"), "of one label the tiles tell all"
    assert browser.complaints == []
    assert {url.removeprefix(f"http://{dispatcher.page_address}") for url in browser.requested} == {
        "/", "/page.css", "/page.js", "/charts.js", "/plans.js", "/icon.svg", "/state.json"
    }  # fmt: skip


async def test_staleness_is_shown_where_copies_may_be_stale(dispatcher: Dispatcher, browser: Browser) -> None:
    """All workers train one row in every iteration, and pull it when the server is more than 6 updates ahead."""
    job = replace(JOB, sync=Bounded(pull=6, push=1))
    again = replace(samples(640, job=job), ids=np.ones_like(samples(640, job=job).ids))
    await run_to_the_end(dispatcher, job, [again])
    await browser.open(f"http://{dispatcher.page_address}/", **DESKTOP)
    await browser.until("!document.getElementById('stale').hidden")
    staleness = (await dispatcher.client.describe()).sync_figures
    shares = await browser.run("[...document.querySelectorAll('#stale-reads .amount')].map(e => e.innerText)")
    expected = [count / sum(staleness.reads) for count in staleness.reads]
    found = [float(share.rstrip("%")) / 100 for share in shares]
    assert found == pytest.approx(expected[: len(found)], abs=0.006)
    assert sum(found) == pytest.approx(1, abs=0.02)
    assert len(found) > 2
    text = await browser.run("document.getElementById('stale').innerText")
    assert "6 to pull and 1 to push, allow 9" in text
    assert f"and {staleness.most_missing} at most" in text
    assert browser.complaints == []


async def test_the_plans_of_the_latest_iteration_are_shown(dispatcher: Dispatcher, browser: Browser) -> None:
    workers = await run_to_the_end(dispatcher, JOB, [samples(640, job=JOB)])
    await browser.open(f"http://{dispatcher.page_address}/", **DESKTOP)
    await browser.until("!document.getElementById('plans').hidden")
    assert await browser.run("document.getElementById('plans-title').innerText") == "Plans of iteration 19"
    head, *rows = await rows_of(browser, "plans-table")
    for worker, row in zip(workers, rows, strict=True):
        shown = dict(zip((title.lower() for title in head), row, strict=True))
        plan = worker.plans[19]
        assert (shown["worker"], shown["samples"]) == (worker.name, "8")
        assert shown["pulls"] == str(len(plan.pulls))
        pushes, *_, receivers = shown["update pushes"].splitlines()
        assert pushes == str(len(plan.update_rows) + len(plan.update_gradients))
        assert receivers.startswith("edge-")
    assert browser.complaints == []


async def test_samples_are_shown_label_by_label(dispatcher: Dispatcher, browser: Browser) -> None:
    job = job_with(workers=4, batch_size=32, name="flights", labels=("clicked", "bought"))
    await run_to_the_end(dispatcher, job, [replace(samples(640, job=job), labels=np.ones((640, 2), np.float32))])
    await browser.open(f"http://{dispatcher.page_address}/", **DESKTOP)
    await browser.until(ALL_WORKERS)
    assert await browser.run("document.getElementById('held-out').hidden"), "nobody has evaluated anything"
    assert (await rows_of(browser, "labels-table"))[1:] == [
        [label, f"{math.log(2):.4f}\n{math.log(2):.4f} lately", NOTHING, NOTHING, "0.5000\n0.5000 lately"]
        for label in job.labels
    ]
    assert "calibration of clicked" in await tiles(browser)
    assert "checkpoint" not in await tiles(browser), "the job takes none"
    await dispatcher.client.record_evaluations(job.name, [evaluation(10, 0.7), evaluation(20, 0.7531)])
    await browser.until("!document.getElementById('held-out').hidden")
    head, *found = await rows_of(browser, "held-out-table")
    assert [title.lower() for title in head] == ["label", "loss", "auc", "normalised entropy", "calibration"]
    assert found == [
        ["clicked", "0.5000", "0.7531", "0.9000", "1.1000"],
        ["bought", "0.2500", NOTHING, NOTHING, "0.8000"],
    ]
    assert "at iteration 20" in await browser.run("document.getElementById('held-out-hint').innerText")
    assert await browser.run("document.querySelectorAll('#loss path.series, #auc path.series').length") == 4
    assert await browser.run("document.querySelectorAll('#loss circle, #auc circle').length") == 4, "each evaluation"
    assert browser.complaints == []


async def rows_of(browser: Browser, table: str) -> list[list[str]]:
    """The texts of a table, row by row, the head first."""
    found: list[list[str]] = await browser.run(
        f"[...document.querySelectorAll('#{table} tr')].map(row => [...row.children].map(e => e.innerText))"
    )
    return found


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("window", [DESKTOP, PHONE], ids=["desktop", "phone"])
async def test_it_fits_the_window(
    dispatcher: Dispatcher, browser: Browser, window: dict[str, Any], dark: bool, tmp_path: Path
) -> None:
    await run_to_the_end(dispatcher, JOB, [samples(640, job=JOB)])
    evaluated = Evaluation(20, (Quality(0.5, 0.7, 0.9, 1.1, 0.6),), ranking=Ranking(0.45, 0.25, 0.5, 0.75))
    await dispatcher.client.record_evaluations(JOB.name, [evaluated])
    await browser.open(f"http://{dispatcher.page_address}/", dark=dark, **window)
    await browser.until(ALL_WORKERS)
    assert await browser.run("document.documentElement.scrollWidth") == window["width"]
    links = await browser.run("document.querySelector('#held-out-table .verdict').innerText")
    assert "MRR 0.4500, Hits@1 0.2500, Hits@3 0.5000, Hits@10 0.7500" in links
    cut_off = (
        "[...document.querySelectorAll('.tile, .card, td, h1, .pill')].filter(e => e.scrollWidth > e.clientWidth + 1)"
    )
    assert await browser.run(f"{cut_off}.map(e => e.innerText)") == []
    ground = await browser.run("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(15, 20, 26)") is dark
    assert (await browser.screenshot()).startswith(b"\x89PNG")


async def test_a_dispatcher_that_goes_away_is_told(browser: Browser) -> None:
    settings = DispatcherSettings(metrics_port=None, page_port=free_port())  # which nobody else gets as it goes away
    async with serve_dispatcher(settings) as served:
        await browser.open(f"http://{served.page_address}/", **PHONE)
        await browser.until(f"!{NO_NOTICE}")
    await browser.until("document.getElementById('notice').textContent.includes('does not answer')")


async def test_a_job_that_has_lost_a_worker_is_said_to_go_on(browser: Browser) -> None:
    lost = asyncio.Event()

    async def source() -> AsyncIterator[SampleBatch]:
        for seed in range(3):
            yield samples(8, seed=seed)
        await lost.wait()
        yield samples(8, seed=3)

    async with (
        parameter_server(ParameterServerSettings(metrics_port=None, grace_seconds=0)) as server,
        serve_dispatcher(
            DispatcherSettings(metrics_port=None, page_port=0, lease_seconds=3, rejoin_seconds=600, grace_seconds=0)
        ) as served,
        AsyncDispatcherClient(served.address) as client,
        AsyncDispatcherClient(served.address) as other,
    ):
        job = job_with(workers=2, checkpoint_every=2, parameter_servers=(server.address,))
        await client.create_job(job)
        stays, goes = Worker(client, "edge-0"), Worker(other, "edge-1")
        training = [asyncio.create_task(each.train()) for each in (stays, goes)]
        submission = asyncio.create_task(client.submit(job.name, source()))
        await state_when(client, lambda state: (state.checkpoint, state.iterations_confirmed) == (2, 3))
        training[1].cancel()
        await goes.leave()
        await browser.open(f"http://{served.page_address}/", **DESKTOP)
        said = "1 of 2 workers are here; training goes on when all are."
        await browser.until(f"document.getElementById('notice').textContent === '{said}'")
        assert "iterations\n3\n0 planned ahead, checkpoint at 2\n" in await tiles(browser)
        training[1] = asyncio.create_task(Worker(other, "edge-1").train())
        lost.set()
        await submission
        await browser.until(f"document.getElementById('phase').textContent === 'finished' && {NO_NOTICE}")
        assert "iterations\n4\n0 planned ahead, checkpoint at 4, gone back once\n" in await tiles(browser)
        await asyncio.gather(*training, return_exceptions=True)


async def test_a_failure_is_shown_as_text(dispatcher: Dispatcher, browser: Browser) -> None:
    job = job_with(name="<b>bold</b>")
    await dispatcher.client.create_job(job)
    small = dispatcher.worker("edge-0")
    await small.register(cache_rows=1)
    await dispatcher.worker("edge-1").register(cache_rows=1)
    await dispatcher.client.describe()
    submission = asyncio.create_task(dispatcher.client.submit(job.name, _stream(samples(8))))
    await browser.open(f"http://{dispatcher.page_address}/", **DESKTOP)
    await browser.until("document.getElementById('phase').textContent === 'failed'")
    assert "cache" in await browser.run("document.getElementById('notice').textContent")
    assert await browser.run("document.getElementById('title').textContent") == "<b>bold</b>"
    await asyncio.gather(submission, return_exceptions=True)


async def tiles(browser: Browser) -> str:
    return str(await browser.run("document.getElementById('tiles').innerText")).lower()


async def _stream(batch: Any) -> AsyncIterator[Any]:
    yield batch
