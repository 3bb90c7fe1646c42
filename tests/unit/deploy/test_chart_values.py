"""Values that are wrong are refused when a release is installed, by their names."""

from __future__ import annotations

from typing import Any

import helm_python
import pytest

from tests.support.chart import render

TLS = {"enabled": True, "secrets": {"parameterServers": "a", "dispatcher": "b", "worker": "c", "client": "d"}}


@pytest.mark.parametrize(
    ("values", "mistake"),
    [
        ({"sharts": 2}, "sharts"),
        ({"parameterServers": {"shards": 0}}, "shards"),
        ({"parameterServers": {"settings": {"store_thread": 8}}}, "store_thread"),
        ({"dispatcher": {"settings": {"listen": "0.0.0.0:1"}}}, "listen"),
        ({"dispatcher": {"pod": {"nodeSelektor": {}}}}, "nodeSelektor"),
        ({"workers": {"defaults": {"device": "tpu"}}}, "device"),
        ({"workers": {"defaults": {"link": "fast"}}}, "link"),
        ({"workers": {"list": [{"link": "50m"}]}}, "name"),
        ({"workers": {"list": [{"name": "Edge_1"}]}}, "name"),
        ({"workers": {"list": [{"name": "a", "settings": {"cache_row": 5}}]}}, "cache_row"),
        ({"workers": {"list": [{"name": "a"}, {"name": "a"}]}}, "two workers have the name a"),
        ({"tokens": {"worker": "t"}}, "tokens are sent over TLS only"),
        ({"tls": {"enabled": True}}, r"tls\.secrets\.client is empty"),
        ({"tls": {"enabled": True, "certManager": {"enabled": True}}}, r"tls\.certManager\.issuerRef\.name is empty"),
        ({"driver": {"arguments": ["--data", "flights"]}}, "the all-reduce needs connections between workers"),
        ({"driver": {"arguments": ["--dense", "server", "--direct"]}}, "--direct needs connections between workers"),
    ],
)
def test_a_wrong_value_is_named(values: dict[str, Any], mistake: str) -> None:
    with pytest.raises((helm_python.HelmValuesError, helm_python.HelmRenderError), match=mistake):
        render(values)


@pytest.mark.parametrize(
    "values",
    [
        {"global": {"anything": 1}},
        {"driver": {"arguments": ["--data", "flights"]}, "networkPolicy": {"betweenWorkers": True}},
        {"driver": {"arguments": ["--data", "flights"]}, "networkPolicy": {"enabled": False}},
        {"driver": {"arguments": ["--config", "/code/run.toml"]}},
        {"driver": {"arguments": ["--dense", "every:16"]}},
        {"driver": {"enabled": False}, "tls": {**TLS, "secrets": {**TLS["secrets"], "client": ""}}},  # type: ignore[dict-item]
    ],
)
def test_values_that_fit_together_are_taken(values: dict[str, Any]) -> None:
    assert render(values)
