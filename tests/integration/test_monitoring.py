"""A real Prometheus scrapes a running local system: every metric is fed, no panel is empty, no alert is false."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import numpy as np
import pytest

from deploy.grafana import dashboard
from esd.protos import inference_pb2_grpc
from esd.run.cluster import LocalServices
from esd.run.driver import drive
from esd.run.events import Event
from esd.run.held_out import watched
from esd.run.options import RunOptions
from esd.run.stream import TrainingStream, first_samples, training_stream
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.domain.batches import SampleBatch
from esd.services.domain.reports import LINK_DIRECTIONS, LINK_KINDS
from esd.services.domain.sources import SourcePosition
from esd.services.domain.state import JobState
from esd.services.domain.tables import OptimizerKind
from esd.services.runtime.metrics import REGISTRY
from testbed.redis_server import redis_server
from tests.support.lane_ends import lane_ends
from tests.support.prometheus import Prometheus, prometheus
from tests.support.served_models import job_of_ids, request_of, served, write_model

OPTIONS = RunOptions(
    workers=2,
    mechanism="esd",  # its solver has metrics of its own
    links="1g,100m",
    batch=32,
    dim=8,
    cache_rows=400,
    optimizer=OptimizerKind.SGD,
    learning_rate=0.05,
    iterations=150,
    max_rows=1_000_000,
    row_ttl=1_000,
    admit_after=2,
    budget="auto",
    seed=3,
)


@dataclass(frozen=True)
class Monitored:
    """A system that has trained, the Prometheus that watched it, and the job's own figures.

    Attributes:
        at: when the job had just ended: rates of the last minute are told as of then.
    """

    prometheus: Prometheus
    state: JobState
    alerts: set[str]
    at: float

    def total(self, expression: str) -> float:
        return sum(self.prometheus.values(expression))


class GroupedStream(TrainingStream):
    """The samples of a run as of a log, in groups by the id of their first field, so that there is a GAUC to watch."""

    def __iter__(self) -> Iterator[SampleBatch]:
        for number, batch in enumerate(super().__iter__()):
            groups = batch.ids.reshape(len(batch), -1)[:, 0]
            yield replace(batch, groups=groups, source=SourcePosition(str(number), lag=7))


@pytest.fixture(scope="module")
def monitored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Monitored]:
    directory = tmp_path_factory.mktemp("monitored")
    (directory / "redis").mkdir()
    write_model(directory / "model", job_of_ids())
    with (
        asyncio.Runner() as runner,
        redis_server(directory / "redis") as redis,
        served(directory / "model", "--reload-seconds", "0.1") as model,
        lane_ends(model["address"]) as (near, far),
    ):
        chosen = training_stream(OPTIONS)
        stream = GroupedStream(chosen.dataset, chosen.limit, chosen.batch_size, chosen.whole)
        cluster_context = LocalServices(
            shards=1, store=redis.url, worker_links=OPTIONS.bandwidths(), cache_rows=[400, 400], logs=directory
        )
        cluster = runner.run(cluster_context.__aenter__())
        runner.run(_all_ready(cluster.workers))
        targets = {
            "dispatcher": [cluster.dispatcher.metrics],
            "ps_server": [server.metrics for server in cluster.parameter_servers],
            "worker": [worker.metrics for worker in cluster.workers],
            "model": [model["metrics"]],
            "lanes": [near["metrics"], far["metrics"]],
        }
        with prometheus(directory, targets) as server:
            server.until("count(up == 1) == 7")
            job = OPTIONS.job(
                features=stream.dataset.features,
                dense_features=stream.dataset.dense_features,
                parameter_servers=tuple(each.address for each in cluster.parameter_servers),
            )
            job = replace(job, submitters=2)
            second: list[asyncio.Task[int]] = []

            async def train() -> JobState:
                async with (
                    AsyncDispatcherClient(cluster.dispatcher.address) as client,
                    watched(OPTIONS, job, list(first_samples(stream, 2000)), client) as held_out,
                ):

                    def submit_second_part(_event: Event) -> None:
                        if not second:
                            part = client.submit(job.name, list(first_samples(stream, 640)), part=1)
                            second.append(asyncio.create_task(part))

                    state = await drive(client, job, stream, submit_second_part, held_out)
                    assert await second[0] == 640
                    await held_out.finish(state.iterations_confirmed)
                    return state

            state = runner.run(train())
            server.until('esd_job_phase{phase="finished"} == 1')
            server.until("esd:decision_seconds:mean5m > 0")
            server.until("esd_held_out_iteration > 0")
            _score(model["address"], near["address"], directory / "model", server)
            at = time.time()
            yield Monitored(server, state, server.alerts(), at)
        runner.run(cluster_context.__aexit__(None, None, None))


def _score(address: str, lanes: str, folder: Path, server: Prometheus) -> None:
    """Requests scores of a model, over lanes, until their rate is known, and replaces its folder."""
    write_model(folder, job_of_ids(), offset=1)
    server.until('esd_model_reloads_total{result="loaded"} > 0')
    deadline = time.monotonic() + 110
    with grpc.insecure_channel(address, [("grpc.http_proxy", f"http://{lanes}")]) as channel:
        stub = inference_pb2_grpc.GRPCInferenceServiceStub(channel)
        while not server.query("rate(esd_model_request_seconds_count[1m]) > 0"):
            assert time.monotonic() < deadline
            stub.ModelInfer(request_of(np.ones((2, 2), np.uint64)), timeout=60)


async def _all_ready(services: list) -> None:
    await asyncio.gather(*(service.wait_ready() for service in services))


OF_LAIA_ADAPTIVE = "esd_feature_infrequency_ratio"  # tests/integration/dispatcher/test_budget.py sees it fed
FAMILIES = [family.name for family in REGISTRY.collect() if not family.name.startswith(("process_", OF_LAIA_ADAPTIVE))]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_metric_is_fed_by_some_service(family: str, monitored: Monitored) -> None:
    fed = f'{{__name__=~"{family}(_total|_count)?"}}'
    found = monitored.prometheus.query(f"last_over_time({fed}[1h])")  # of workers, too, which have ended
    assert found, f"nobody feeds {family}"


QUERIES = [
    pytest.param(expression, id=f"{panel.title}: {legend}")
    for panels in dashboard.ROWS.values()
    for panel in panels
    for expression, legend in panel.queries
    if expression != OF_LAIA_ADAPTIVE
]


@pytest.mark.parametrize("expression", QUERIES)
def test_no_panel_is_empty(expression: str, monitored: Monitored) -> None:
    values = monitored.prometheus.values(expression.replace("$__rate_interval", "1m"), monitored.at)
    assert [value for value in values if math.isfinite(value)], expression


def test_counters_equal_what_the_job_says(monitored: Monitored) -> None:
    workers = monitored.state.workers
    for operation in ("miss_pull", "update_push", "evict_push", "flush_push"):
        counted = monitored.total(f'esd_embedding_transfers_total{{op="{operation}"}}')
        assert counted == sum(getattr(worker.transfers, operation) for worker in workers)
    initial = sum(worker.transfers.initial_pull for worker in workers)
    assert monitored.total("esd_initial_pulls_total") == initial > 0
    for kind in LINK_KINDS:
        for direction in LINK_DIRECTIONS:
            counted = monitored.total(f'esd_link_bytes_total{{op="{kind}_{direction}"}}')
            assert counted == sum(worker.transfers.on_link(kind, direction) for worker in workers)
    assert monitored.total("esd_transfer_cost_seconds_total") == pytest.approx(monitored.state.cost_seconds)
    assert monitored.total('esd_cache_lookups_total{result="hit"}') == monitored.state.hits
    assert monitored.total('esd_admission_ids_total{op="admitted"}') == monitored.state.admitted_rows > 0
    assert monitored.total('esd_admission_ids_total{op="initial_read"}') == monitored.state.initial_reads > 0
    assert monitored.total("esd_auc") == pytest.approx(monitored.state.quality.auc)
    assert monitored.total('esd_job_phase{phase="finished"}') == 1


def test_rules_work_and_a_healthy_job_raises_no_alert(monitored: Monitored) -> None:
    assert monitored.prometheus.rule_errors() == []
    assert monitored.alerts == set()


def test_the_dashboard_is_what_grafana_reads() -> None:
    shown = json.loads(Path(dashboard.FILE).read_text())
    assert shown["uid"] == "esd"
    assert {target["datasource"]["uid"] for panel in shown["panels"] for target in panel.get("targets", [])} == {
        "prometheus"
    }
