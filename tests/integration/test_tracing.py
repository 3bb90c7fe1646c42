"""Traces of real runs, as a collector of OpenTelemetry gets them: one for each iteration, from every process."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from esd.run.cluster import LocalServices
from esd.run.options import RunOptions
from esd.services.domain.state import JobState
from esd.services.domain.tables import OptimizerKind
from tests.support import training
from tests.support.models import assert_same_model
from tests.support.otlp_receiver import Collector, ReceivedSpan, collector

OPTIONS = RunOptions(
    workers=2,
    links="1g",
    batch=32,
    dim=8,
    cache_rows=700,
    optimizer=OptimizerKind.SGD,
    learning_rate=0.05,
    iterations=12,
    model="tests.support.telling_model:Net",
    seed=3,
)
PHASES = ["plan_wait", "push", "pull", "compute", "update", "all_reduce", "update", "all_reduce"]
OPEN_METRICS = "application/openmetrics-text; version=1.0.0"


@dataclass(frozen=True)
class Traced:
    """A run with a collector.

    Attributes:
        collector: with its spans.
        out: the folder of the run.
        pages: the dispatcher's metrics before the end of the run, by the Accept of the request.
    """

    collector: Collector
    out: Path
    pages: dict[str, tuple[str, str]]


def metrics_of(cluster: LocalServices, accept: str) -> tuple[str, str]:
    """The media type and the text of the dispatcher's metrics page."""
    request = urllib.request.Request(f"http://{cluster.dispatcher.metrics}/metrics", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def trained(out: Path, **where: Any) -> dict[str, tuple[str, str]]:
    pages: dict[str, tuple[str, str]] = {}

    def watch(cluster: LocalServices, state: JobState) -> None:
        if state.iterations_confirmed and not pages and cluster.dispatcher.metrics:
            pages.update({accept: metrics_of(cluster, accept) for accept in (OPEN_METRICS, "text/plain")})

    training.run(OPTIONS, watch=watch, out=out, **where)
    return pages


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traced]:
    out = tmp_path_factory.mktemp("traced")
    with collector() as collecting:
        with pytest.MonkeyPatch.context() as patch:  # no further than this run
            patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collecting.endpoint)
            patch.setenv("ESD_DISPATCHER_METRICS_PORT", "0")
            pages = trained(out)
        yield Traced(collecting, out, pages)


def plans_of(traced: Traced) -> list[ReceivedSpan]:
    return sorted(traced.collector.named("esd-dispatcher", "plan"), key=lambda span: span.attributes["esd.iteration"])


def test_every_iteration_is_a_trace_of_its_own(traced: Traced) -> None:
    plans = plans_of(traced)
    assert [span.attributes["esd.iteration"] for span in plans] == list(range(OPTIONS.iterations))
    assert not any(span.parent_id for span in plans)
    assert len({span.trace_id for span in plans}) == OPTIONS.iterations
    assert {span.trace_id for span in traced.collector.spans} == {span.trace_id for span in plans}


def test_each_worker_has_its_phases_below_the_plan(traced: Traced) -> None:
    for plan in plans_of(traced):
        workers = traced.collector.children(plan)
        assert sorted(span.instance for span in workers) == ["worker-0", "worker-1"]
        assert sum(span.attributes["esd.samples"] for span in workers) == plan.attributes["esd.samples"]
        for worker in workers:
            assert (worker.service, worker.name, worker.trace_id) == ("esd-worker", "iteration", plan.trace_id)
            assert worker.attributes["esd.iteration"] == plan.attributes["esd.iteration"]
            phases = [span for span in traced.collector.children(worker) if span.service == "esd-worker"]
            assert [span.name for span in phases] == PHASES
            assert worker.began <= phases[0].began
            assert all(before.ended <= after.began for before, after in pairwise(phases))
            assert phases[-1].ended <= worker.ended


def test_frames_at_the_parameter_server_belong_to_the_iteration_of_their_worker(traced: Traced) -> None:
    frames = traced.collector.named("esd-ps", "exchange")
    iterations = {span.span_id: span for span in traced.collector.named("esd-worker", "iteration")}
    assert {iterations[span.parent_id].trace_id for span in frames} == {span.trace_id for span in plans_of(traced)}
    for span in frames:
        assert iterations[span.parent_id].trace_id == span.trace_id
        assert span.attributes["esd.code"] == "OK"
        assert span.attributes["esd.table"] == "embeddings"
        assert span.attributes["esd.bytes"] > 0


def test_phase_times_have_an_iteration_as_example_where_openmetrics_is_read(traced: Traced) -> None:
    kind, text = traced.pages[OPEN_METRICS]
    assert kind.startswith("application/openmetrics-text")
    examples = [line for line in text.splitlines() if line.startswith("esd_iteration_seconds_bucket") and " # " in line]
    named = {line.split('trace_id="')[1].split('"')[0] for line in examples}
    assert named
    assert named <= {span.trace_id for span in plans_of(traced)}
    kind, text = traced.pages["text/plain"]
    assert kind.startswith("text/plain")
    assert "trace_id" not in text


def lines_of(out: Path) -> list[dict[str, Any]]:
    """The lines of the model in all iterations of both workers."""
    lines = [json.loads(line) for log in out.rglob("worker-*.log") for line in log.read_text().splitlines()]
    return [line for line in lines if line["message"] == "forward"]


def test_lines_of_an_iteration_name_its_trace(traced: Traced) -> None:
    named = [(line["trace_id"], line["span_id"]) for line in lines_of(traced.out) if "trace_id" in line]
    spans = traced.collector.named("esd-worker", "iteration")
    assert sorted(named) == sorted((span.trace_id, span.span_id) for span in spans)


def test_without_a_collector_the_model_is_the_same_and_no_exporter_is_imported(traced: Traced, tmp_path: Path) -> None:
    trained(tmp_path)
    assert_same_model(traced.out, tmp_path)
    lines = lines_of(tmp_path)
    assert len(lines) >= OPTIONS.workers * OPTIONS.iterations
    assert not any(line["exports"] or "trace_id" in line for line in lines)


def test_the_sampler_decides_on_an_iteration_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with collector() as collecting:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collecting.endpoint)
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
        monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
        trained(tmp_path)
        plans = collecting.named("esd-dispatcher", "plan")
        assert len(collecting.named("esd-worker", "iteration")) == 2 * len(plans)
        assert {span.trace_id for span in collecting.spans} == {span.trace_id for span in plans}
        assert len(plans) < OPTIONS.iterations  # all of twelve are drawn once in 4,096 times


def test_a_collector_that_is_away_stops_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    trained(tmp_path)
    assert (tmp_path / "model").is_dir()
