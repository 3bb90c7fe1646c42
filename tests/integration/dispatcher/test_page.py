"""The dispatcher's page over HTTP: its files, its document, and its answers to odd requests."""

from __future__ import annotations

import asyncio
import json
import math
import re
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest

from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.state import JobPhase
from esd.services.runtime import http
from esd.services.runtime.metrics import REGISTRY
from tests.support.simple_clients import JOB, job_with, run_to_the_end, samples, state_when


async def exchange(address: str, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of one raw request."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(request)
        answer = await asyncio.wait_for(reader.read(), 60)
    finally:
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    return int(status.split()[1]), dict(line.split(": ", 1) for line in lines), body


async def get(dispatcher: Any, path: str) -> tuple[int, dict[str, str], bytes]:
    return await exchange(dispatcher.page_address, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())


async def document(dispatcher: Any) -> dict[str, Any]:
    status, headers, body = await get(dispatcher, "/state.json")
    assert (status, headers["Content-Type"]) == (200, "application/json")
    return json.loads(body)


@pytest.fixture
async def dispatcher(start_dispatcher: Any) -> Any:
    return await start_dispatcher(page_port=0)


async def test_the_page_is_off_by_default(start_dispatcher: Any) -> None:
    assert (await start_dispatcher()).page_address is None


async def test_everything_that_the_page_needs_comes_from_here(dispatcher: Any) -> None:
    status, headers, body = await get(dispatcher, "/")
    assert status == 200
    assert headers["Content-Security-Policy"] == "default-src 'self'"
    page = body.decode()
    links = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert len(links) >= 4
    _, _, script = await get(dispatcher, "/page.js")
    links += [f"/{name}" for name in re.findall(r'from "\./([^"]+)"', script.decode())]
    for path in links:
        assert path.startswith("/"), f"{path} is not of this server"
        assert (await get(dispatcher, path))[0] == 200, path
    assert "://" not in page


async def test_the_document_before_the_first_job(dispatcher: Any) -> None:
    assert await document(dispatcher) == {"job": None}


async def test_the_document_of_a_job(dispatcher: Any) -> None:
    await dispatcher.client.create_job(JOB)
    await dispatcher.worker("edge-0").register()
    waiting = await document(dispatcher)
    assert waiting["job"]["phase"] == "waiting for workers"
    assert [worker["name"] for worker in waiting["workers"]] == ["edge-0"]
    assert (waiting["quality"]["loss"], waiting["recent"]["auc"], waiting["hit_ratio"]) == (None, None, None)

    await run_to_the_end(dispatcher, JOB, [samples(20)])
    state = await state_when(dispatcher.client, lambda state: state.phase is JobPhase.FINISHED)
    shown = await document(dispatcher)
    assert (shown["job"]["name"], shown["job"]["phase"], shown["job"]["failure"]) == ("flights", "finished", "")
    assert (shown["iterations_confirmed"], shown["samples"]) == (3, 20)
    assert shown["quality"]["loss"] == pytest.approx(state.quality.loss, rel=1e-5)
    assert shown["quality"]["auc"] == 0.5
    assert shown["hit_ratio"] == pytest.approx(state.hits / state.lookups, rel=1e-5)
    assert shown["costs"][0] == {
        "mechanism": "random", "shadow": False, "iterations": 3,
        "seconds": pytest.approx(state.cost_seconds, rel=1e-5),
    }  # fmt: skip
    for worker, expected in zip(shown["workers"], state.workers, strict=True):
        assert worker["name"] == expected.worker
        assert worker["bandwidth_bytes_per_second"] == expected.bandwidth
        assert worker["measured_bandwidth_bytes_per_second"] == expected.measured_bandwidth == 2e6
        assert worker["workload"] == expected.workload == 2, "4 samples are left for the last iteration"
        assert worker["transfers"]["miss_pull"] == expected.transfers.miss_pull
        assert worker["phases"]["compute"] == pytest.approx(expected.phases.compute)
        assert worker["lease_age_seconds"] is None, "a flushed worker needs no lease"
        assert 0 < worker["hit_ratio"] < 1
    lookups = sum(worker["transfers"]["miss_pull"] / (1 - worker["hit_ratio"]) for worker in shown["workers"])
    assert lookups == pytest.approx(state.lookups, rel=1e-4)


async def test_trained_samples_are_shown_label_by_label(dispatcher: Any) -> None:
    """In the document, and to Prometheus, which knows nothing any more of the labels of the job before."""
    await run_to_the_end(dispatcher, JOB, [samples(8)])
    assert _shown_to_prometheus("loss", "label") > 0
    job = job_with(name="visits", labels=("clicked", "bought"))
    labels = np.stack([samples(20).labels[:, 0], np.ones(20, np.float32)], axis=1)
    await run_to_the_end(dispatcher, job, [replace(samples(20, job=job), labels=labels)])
    state = await state_when(dispatcher.client, lambda state: state.phase is JobPhase.FINISHED)
    shown = await document(dispatcher)
    assert shown["labels"] == ["clicked", "bought"]
    for place, label in enumerate(shown["labels"]):
        for kind, of_state, prefix in (
            ("quality_by_label", state.labels, ""),
            ("recent_by_label", state.recent_labels, "recent_"),
        ):
            for figure, value in asdict(of_state[place]).items():
                known = None if math.isnan(value) else pytest.approx(value, rel=1e-5)
                gauge = _shown_to_prometheus(f"{prefix}{figure}", label)
                assert gauge is not None
                assert [shown[kind][place][figure], None if math.isnan(gauge) else gauge] == [known] * 2, (
                    label,
                    figure,
                )
    assert math.isnan(state.labels[1].auc), "the second label is always 1"
    assert state.labels[0].calibration > state.labels[1].calibration
    assert _shown_to_prometheus("loss", "label") is None


def _shown_to_prometheus(figure: str, label: str) -> float | None:
    return REGISTRY.get_sample_value(f"esd_{figure}", {"label": label})


async def test_the_history_of_a_job(dispatcher: Any) -> None:
    await run_to_the_end(dispatcher, JOB, [samples(20)])
    shown = await document(dispatcher)
    history = shown["history"]
    assert history["iterations"] == [0, 1, 2, 3]
    assert history["samples"] == [0, 8, 16, 20]
    assert history["begins"] == [True, False, False, False]
    assert history["loss"][0] is None
    assert all(column == sorted(column) for name, column in history.items() if name.endswith(("seconds", "lookups")))
    assert history["cost_seconds"][-1] == shown["costs"][0]["seconds"]
    assert history["loss"][-1] == shown["quality"]["loss"]


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        ("GET /nothing HTTP/1.1", 404),
        ("GET /../settings.py HTTP/1.1", 404),
        ("POST / HTTP/1.1", 405),
        ("GET /", 400),
        ("\x16\x03\x01", 400),
        ("GET / HTTP/2", 400),
        ("GET /" + "x" * 20_000 + " HTTP/1.1", 400),
        ("GET /state.json?now HTTP/1.1", 200),
    ],
)
async def test_odd_requests(dispatcher: Any, request_line: str, status: int) -> None:
    assert (await exchange(dispatcher.page_address, f"{request_line}\r\n\r\n".encode()))[0] == status


async def test_head_brings_no_body(dispatcher: Any) -> None:
    status, headers, body = await exchange(dispatcher.page_address, b"HEAD / HTTP/1.1\r\n\r\n")
    assert (status, body) == (200, b"")
    assert int(headers["Content-Length"]) > 1000


async def test_a_peer_that_says_nothing_is_let_go(dispatcher: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_HEAD_SECONDS", 0.1)
    host, _, port = dispatcher.page_address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    assert await asyncio.wait_for(reader.read(), 60) == b""
    writer.close()


async def test_a_port_in_use_names_the_variable(start_dispatcher: Any, dispatcher: Any) -> None:
    port = int(dispatcher.page_address.rpartition(":")[2])
    with pytest.raises(FailedPrecondition, match=f"127.0.0.1:{port}: .*ESD_DISPATCHER_PAGE_PORT"):
        await start_dispatcher(page_port=port)
