"""The page of a run as a file shows the same as the live page at the end, in a real browser without any server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from esd.dispatcher.service.app import serve_dispatcher
from esd.dispatcher.service.page.saved import saved_page
from esd.dispatcher.service.settings import DispatcherSettings
from esd.run.events import Event, Progressed, Started
from esd.run.options import RunOptions
from esd.run.output_events import RecordKept, RecordNotKept
from esd.run.results import finite
from esd.run.train import train
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.domain.errors import NotFound
from esd.services.domain.state import Evaluation, Quality
from tests.support.browser import Browser, chromium
from tests.support.simple_clients import Dispatcher, job_with, run_to_the_end, samples

WIDE = {"width": 1280, "height": 900}
PHONE = {"width": 360, "height": 780, "touch": True}
HOSTILE = "</script><script>document.title = 'taken'</script>"
SHOWN = "['title', 'subtitle', 'phase', 'main'].map(id => document.getElementById(id).innerText)"
OPTIONS = RunOptions(
    data="synthetic:zipf?samples=1200&fields=4&keys=500", workers=2, links="100m", batch=10, dim=4, cache_rows=300,
    holdout="0.25", evaluate_every=20, seed=3,
)  # fmt: skip


@pytest.fixture
async def browser(tmp_path: Path) -> AsyncIterator[Browser]:
    async with chromium(tmp_path / "profile") as opened:
        yield opened


@pytest.fixture
async def dispatcher() -> AsyncIterator[Dispatcher]:
    settings = DispatcherSettings(metrics_port=None, page_port=0, grace_seconds=0)
    async with serve_dispatcher(settings) as served, AsyncDispatcherClient(served.address) as client:
        yield Dispatcher(served.address, client, asyncio.Event().wait, served.page_address)


@pytest.mark.parametrize("window", [WIDE, PHONE], ids=["desktop", "phone"])
async def test_the_file_shows_what_the_page_showed(
    dispatcher: Dispatcher, browser: Browser, window: dict[str, Any], tmp_path: Path
) -> None:
    job = job_with(workers=4, batch_size=32, name=HOSTILE)
    await run_to_the_end(dispatcher, job, [samples(640, job=job)])
    evaluations = [Evaluation(at, (Quality(0.5, 0.7 + at / 100, 0.9, 1.1),)) for at in (10, 20)]
    await dispatcher.client.record_evaluations(job.name, evaluations)
    await browser.open(f"http://{dispatcher.page_address}/", **window)
    await browser.until("document.getElementById('phase').textContent === 'finished'")
    live = await browser.run(SHOWN)
    saved = tmp_path / "page.html"
    saved.write_text(saved_page(await dispatcher.client.describe_page(job.name), datetime.now(UTC)))
    browser.requested.clear()

    await browser.open(saved.as_uri(), **window)
    await browser.until("document.getElementById('updated').textContent.startsWith('as of')")
    assert await browser.run(SHOWN) == live
    assert await browser.run("document.title") == f"{HOSTILE}: finished"
    assert await browser.run("document.querySelectorAll('.chart path.series').length") == 7
    assert await browser.run("getComputedStyle(document.body).maxWidth") != "none", "the style sheet is refused"
    assert [url for url in browser.requested if not url.startswith("data:")] == [saved.as_uri()]
    assert browser.complaints == []


async def test_a_page_of_another_job_is_refused(dispatcher: Dispatcher) -> None:
    with pytest.raises(NotFound, match="no job yet"):
        await dispatcher.client.describe_page("flights")
    await dispatcher.client.create_job(job_with(name="flights"))
    with pytest.raises(NotFound, match="no job 'clicks'"):
        await dispatcher.client.describe_page("clicks")


def history(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]


async def test_a_run_leaves_its_page_and_its_history(tmp_path: Path) -> None:
    events: list[Event] = []
    run = await train(OPTIONS, events.append, out=tmp_path)
    kept = [event for event in events if isinstance(event, RecordKept)]
    assert kept == [RecordKept(*(tmp_path / name for name in ("page.html", "history.jsonl", "run.json")))]
    assert '"phase":"finished"' in (tmp_path / "page.html").read_text()

    lines = history(tmp_path)
    points = [line for line in lines if line["kind"] == "point"]
    assert (points[0]["iterations"], points[0]["begins"]) == (0, True)
    last = points[-1]
    assert (last["iterations"], last["samples"]) == (45, 900)
    assert last["loss"] == pytest.approx(run.state.quality.loss)
    evaluated = {line["iteration"]: line["auc"] for line in lines if line["kind"] == "evaluation"}
    assert list(evaluated) == [20, 40, 45]
    assert list(evaluated.values()) == pytest.approx([each.quality.auc for each in run.evaluations])

    record = json.loads((tmp_path / "run.json").read_text(), parse_constant=refuse)
    assert record["figures"] == finite(run.result())
    assert record["options"]["cache_rows"] == OPTIONS.cache_rows
    assert record["data"] == run.job.stream != ""
    logged = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [each["text"] for each in logged] == [str(each) for each in events if not isinstance(each, Progressed)]


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


async def test_a_run_that_is_stopped_leaves_what_it_had(tmp_path: Path) -> None:
    running = asyncio.current_task()
    assert running is not None
    events: list[Event] = []

    def stop_late(event: Event) -> None:
        events.append(event)
        if isinstance(event, Progressed) and event.state.iterations_confirmed >= 5 and not running.cancelling():
            running.cancel()

    slow = RunOptions(data=OPTIONS.data, workers=1, links="1m", batch=10, dim=4, cache_rows=100)
    with pytest.raises(asyncio.CancelledError):
        await train(slow, stop_late, out=tmp_path)
    running.uncancel()
    assert [type(event) for event in events if isinstance(event, RecordKept | RecordNotKept)] == [RecordKept]
    assert "its driver was stopped" in (tmp_path / "page.html").read_text()
    assert 5 <= history(tmp_path)[-1]["iterations"] < 120


async def test_a_run_whose_dispatcher_has_died_reports_that_there_is_no_record(tmp_path: Path) -> None:
    events: list[Event] = []

    def kill(event: Event) -> None:
        events.append(event)
        started = next((each for each in events if isinstance(each, Started)), None)
        if isinstance(event, Progressed) and event.state.iterations_confirmed and started and started.cluster:
            process = started.cluster.dispatcher.process
            if process.returncode is None:
                process.kill()

    slow = RunOptions(data=OPTIONS.data, workers=1, links="1m", batch=10, dim=4, cache_rows=100)
    with pytest.raises(Exception, match="dispatcher"):
        await train(slow, kill, out=tmp_path)
    assert [type(event) for event in events if isinstance(event, RecordKept | RecordNotKept)] == [RecordNotKept]
    assert not (tmp_path / "page.html").exists()
