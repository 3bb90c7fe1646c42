"""The catalogue of metrics keeps its own rules."""

import random
import re

import pytest
from prometheus_client import Histogram, Metric
from prometheus_client.registry import Collector

from services.runtime.metric_kinds import LazyHistogram, LoopCounter
from services.runtime.metrics import BY_SERVICE, EVERY_SERVICE, REGISTRY

OURS = [family for family in REGISTRY.collect() if not family.name.startswith("process_")]
LABELS = {"op", "worker", "mechanism", "result", "table", "phase", "solver", "method", "code", "label", "feature"}


@pytest.mark.parametrize("family", OURS, ids=lambda family: family.name)
def test_names_follow_the_rules(family: Metric) -> None:
    name = family.name  # a counter's family is named without _total
    assert re.fullmatch(r"(esd|grpc_server)_[a-z_]+", name)
    assert not re.search(r"_(total|ms|milliseconds|us|kb|mb|percent|count|sum|bucket)$", name)
    if family.type == "histogram":
        assert name.endswith(("_seconds", "_bytes", "_updates"))


@pytest.mark.parametrize("family", OURS, ids=lambda family: family.name)
def test_help_says_what_it_means_and_what_to_do(family: Metric) -> None:
    sentences = re.split(r"[.;:] ", family.documentation)
    assert len(sentences) >= 2
    assert family.documentation.endswith(".")


def test_design_metrics_exist() -> None:
    names = {name for family in OURS for name in (family.name, f"{family.name}_total")}
    assert names >= {
        "esd_embedding_transfers_total",
        "esd_transfer_bytes_total",
        "esd_transfer_cost_seconds_total",
        "esd_shadow_transfer_cost_seconds_total",
        "esd_cache_lookups_total",
        "esd_dispatch_seconds",
        "esd_solver_seconds",
        "esd_iteration_seconds",
        "esd_worker_bandwidth_bytes_per_second",
        "esd_loss",
        "esd_auc",
        "grpc_server_handled_total",
        "grpc_server_handling_seconds",
    }


def test_labels_are_few_and_bounded() -> None:
    collectors = {
        collector for collector in REGISTRY._names_to_collectors.values() if hasattr(collector, "_labelnames")
    }
    assert len(collectors) == len(OURS)
    for collector in collectors:
        assert set(collector._labelnames) <= LABELS
        assert len(collector._labelnames) <= 2


def test_every_metric_is_shown_by_one_kind_of_service_or_by_all() -> None:
    shown = [*EVERY_SERVICE, *(metric for shown in BY_SERVICE.values() for metric in shown)]
    assert len(set(shown)) == len(shown)
    assert set(shown) == set(REGISTRY._collector_to_names)


def test_a_lazy_histogram_is_one_whenever_somebody_looks() -> None:
    """It puts the values that wait into its buckets when somebody looks, and when there are many."""
    lazy = LazyHistogram("lazy_seconds", "Lazy.", ("phase",), buckets=(0.1, 0.2, 1), registry=None)
    plain = Histogram("lazy_seconds", "Lazy.", ("phase",), buckets=(0.1, 0.2, 1), registry=None)
    rng = random.Random(3)
    for number in range(3000):
        value = rng.choice([0.0, 0.1, 0.2, 0.25, 1.0, 2.0]) if number % 2 else rng.random()
        lazy.labels("push").observe(value)
        plain.labels("push").observe(value)
        if number in (0, 10, 1023, 1024, 2999):
            assert values_of(lazy) == pytest.approx(values_of(plain))
    lazy.labels("push").observe_all({0: 2, 3: 1}, 5.5)
    assert values_of(lazy)["lazy_seconds_bucket", "+Inf"] == 3003
    assert values_of(lazy)["lazy_seconds_bucket", "1.0"] == values_of(plain)["lazy_seconds_bucket", "1.0"] + 2


def test_a_loop_counter_shows_what_was_added_whenever_somebody_looks() -> None:
    counter = LoopCounter("rows", "Rows.", ("worker",), registry=None)
    counter.labels(0).inc(7)
    assert values_of(counter)["rows_total", None] == 7
    counter.labels(0).inc()
    counter.labels(0).inc(0.5)
    assert values_of(counter)["rows_total", None] == 8.5


def values_of(metric: Collector) -> dict[tuple[str, str | None], float]:
    """What a metric shows, by name and bucket, but for when it began."""
    (family,) = metric.collect()
    samples = {(sample.name, sample.labels.get("le")): sample.value for sample in family.samples}
    return {key: value for key, value in samples.items() if not key[0].endswith("_created")}
