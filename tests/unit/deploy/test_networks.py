"""Containers that call each other share a network, and the parameter server is alone with Redis."""

from itertools import combinations
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
SERVICES = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]

CALLS = [
    ("ps_server", "redis"),
    ("dispatcher", "ps_server"),  # opens runs, makes checkpoints
    ("worker", "dispatcher"),
    ("worker", "ps_server"),
    ("driver", "dispatcher"),
    ("driver", "ps_server"),
    ("prometheus", "dispatcher"),
    ("prometheus", "ps_server"),
    ("prometheus", "worker"),
    ("grafana", "prometheus"),
]


@pytest.mark.parametrize(("caller", "called"), CALLS)
def test_a_service_reaches_what_it_calls(caller: str, called: str) -> None:
    assert set(SERVICES[caller]["networks"]) & set(SERVICES[called]["networks"])


def test_only_the_parameter_server_reaches_redis() -> None:
    reached = {
        frozenset(pair)
        for pair in combinations(SERVICES, 2)
        if "redis" in pair and set(SERVICES[pair[0]]["networks"]) & set(SERVICES[pair[1]]["networks"])
    }
    assert reached == {frozenset({"redis", "ps_server"})}
