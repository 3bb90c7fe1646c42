"""The catalogue of metrics keeps its own rules."""

import re

import pytest
from prometheus_client import Metric

from esd.services.runtime.metrics import BY_SERVICE, EVERY_SERVICE, REGISTRY

OURS = [family for family in REGISTRY.collect() if not family.name.startswith("process_")]
LABELS = {
    "op",
    "part",
    "worker",
    "mechanism",
    "result",
    "table",
    "phase",
    "solver",
    "method",
    "code",
    "label",
    "feature",
    "way",
}


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
    shown = [*EVERY_SERVICE, *(metric for metrics in BY_SERVICE.values() for metric in metrics)]
    assert len(set(shown)) == len(shown)
    assert set(shown) == set(REGISTRY._collector_to_names)
