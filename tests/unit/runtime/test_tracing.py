"""Tracing as a process begins and ends it: its variables, and contexts of strangers."""

from __future__ import annotations

import logging
import os

import pytest

from esd.services.runtime import logs
from esd.services.runtime.tracing import begin_trace, continue_trace, enter, tracing
from tests.support.otlp_receiver import collector

PARENT = f"00-{7:032x}-{9:016x}-01"


@pytest.fixture(autouse=True)
def _no_settings_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


async def test_a_service_exports_its_last_spans_before_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    with collector() as collecting:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collecting.endpoint)
        async with tracing("ps", "ps-0"):
            root = begin_trace("plan")
            assert root is not None
            below = continue_trace(root.context, "exchange", began=1.0)
            assert below is not None
            below.child("part", 2.0, 2.5)
            below.end(code="OK")
            root.end(iteration=3)
        assert begin_trace("plan") is None
        (plan,), (exchange,) = collecting.named("esd-ps", "plan"), collecting.named("esd-ps", "exchange")
        (part,) = collecting.children(exchange)
    assert (plan.instance, plan.attributes, plan.trace_id) == ("ps-0", {"esd.iteration": 3}, root.trace_id)
    assert (exchange.parent_id, exchange.trace_id) == (plan.span_id, plan.trace_id)
    assert (part.began - exchange.began, part.ended - exchange.began) == (1_000_000_000, 1_500_000_000)


async def test_names_of_the_environment_come_before_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    with collector() as collecting:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{collecting.endpoint}/v1/traces")
        monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
        async with tracing("ps", "ps-0"):
            root = begin_trace("plan")
            assert root is not None
            root.end()
        assert [(span.service, span.instance) for span in collecting.spans] == [("mine", "ps-0")]


@pytest.mark.parametrize("parent", ["", "x", PARENT[:-1] + "0", PARENT.replace("7", "0"), PARENT * 20_000])
async def test_what_a_peer_names_as_its_span_never_begins_a_trace(monkeypatch: pytest.MonkeyPatch, parent: str) -> None:
    with collector() as collecting:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collecting.endpoint)
        async with tracing("ps", "ps-0"):
            span = continue_trace(parent, "exchange")
            assert span is None or span.trace_id == PARENT[3:35]
        assert span is None or parent.startswith(PARENT)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, ""),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, ""),
        ({"OTEL_SDK_DISABLED": "true"}, ""),
        ({"OTEL_TRACES_EXPORTER": "none"}, ""),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "OTEL_EXPORTER_OTLP_PROTOCOL is grpc, and only http/protobuf"),
        (
            {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json"},
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL is http/json",
        ),
    ],
)
async def test_what_keeps_tracing_off(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, changes: dict[str, str], told: str
) -> None:
    if changes:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    for name, value in changes.items():
        monkeypatch.setenv(name, value)
    with caplog.at_level(logging.WARNING):
        async with tracing("ps", "ps-0"):
            assert begin_trace("plan") is None
            assert continue_trace(PARENT, "exchange") is None
    assert told in caplog.text
    assert bool(told) == bool(caplog.text)


async def test_lines_name_the_span_that_was_entered_last(monkeypatch: pytest.MonkeyPatch) -> None:
    def line() -> str:
        return logs.JsonFormatter().format(logging.makeLogRecord({"msg": "here"}))

    with collector() as collecting:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collecting.endpoint)
        async with tracing("ps", "ps-0"):
            root = begin_trace("plan")
            assert root is not None
            enter(root)
            assert root.trace_id in line()
            enter(None)
            assert root.trace_id not in line()
            root.end()
