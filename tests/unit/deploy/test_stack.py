"""The stack for a swarm opens no port that the compose file keeps to one address, and hands secrets on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[3] / "deploy" / "stack"


def stack(ports: list[Any]) -> tuple[dict[str, Any], str]:
    """The stack of a project of one service with these ports, and the messages about it."""
    service = {"image": "esd", "networks": ["lan"], "mem_limit": "1g", "pids_limit": 1024, "restart": "always"}
    service |= {"ports": ports, "secrets": [{"source": "password"}]}
    compose = {
        "services": {"dispatcher": service},
        "networks": {"lan": None},
        "volumes": {},
        "secrets": {"password": {"file": "/secrets/password"}},
    }
    command = [sys.executable, str(SCRIPT)]
    done = subprocess.run(command, input=json.dumps(compose), check=True, capture_output=True, text=True)
    return json.loads(done.stdout), done.stderr


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.7"])
@pytest.mark.parametrize("long", [False, True])
def test_ports_for_one_address_stay_closed_and_are_named(address: str, long: bool) -> None:
    written = {"host_ip": address, "published": "50051", "target": 50051} if long else f"{address}:50051:50051/tcp"
    made, said = stack([written])
    assert made["services"]["dispatcher"]["ports"] == []
    assert f"dispatcher: port 50051 stays closed, since a swarm cannot open it at {address} alone" in said


@pytest.mark.parametrize("port", ["0.0.0.0:8081:8080/tcp", "8081:8080", {"published": "8081", "target": 8080}])
def test_ports_for_every_address_are_opened(port: object) -> None:
    made, said = stack([port])
    opened = {"target": 8080, "published": 8081, "mode": "host", "protocol": "tcp"}
    assert (made["services"]["dispatcher"]["ports"], said) == ([opened], "")


def test_limits_are_those_of_the_compose_file() -> None:
    made, _ = stack([])
    assert made["services"]["dispatcher"]["deploy"]["resources"] == {"limits": {"memory": "1g", "pids": 1024}}


def test_secrets_are_distributed_by_the_swarm() -> None:
    made, _ = stack([])
    assert made["secrets"] == {"password": {"file": "/secrets/password"}}
    assert made["services"]["dispatcher"]["secrets"] == [{"source": "password"}]
