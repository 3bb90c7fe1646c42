"""`esd cluster` on two machines: this one, and a network namespace with an engine of its own."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from esd.cli.cluster import CREDENTIALS
from esd.run.simulation import simulate_run
from esd.run.train import train_attached
from esd.services.clients.dispatcher import DispatcherClient
from esd.services.runtime.security import Credentials
from testbed.free_port import free_port
from tests.e2e.compose import ROOT, TURNED_AWAY, docker
from tests.e2e.engine import second_machine
from tests.integration.test_attached_training import OPTIONS

pytestmark = pytest.mark.timeout(600)

PORTS = (
    "redis", "ps_server", "ps_server_metrics", "dispatcher", "dispatcher_metrics", "page", "worker", "worker_metrics",
)  # fmt: skip


def esd(*arguments: str) -> str:
    """The output of the command, which has to work."""
    command = [sys.executable, "-m", "esd.cli", *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT, timeout=400)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def cluster_file(tmp_path_factory, project_names):
    directory = tmp_path_factory.mktemp("second")
    with second_machine(directory, f"esd{os.getpid()}") as second:
        ports = {name: free_port() for name in PORTS}
        file = directory / "cluster.toml"
        (directory / "models").mkdir()
        shutil.copy(ROOT / "examples/visits/net.py", directory / "models")
        file.write_text(
            f"""
name = "{next(project_names)}"
version = "e2e"
redis_image = "esd-e2e-redis"
code = "models"
head = "first"

[[hosts]]
name = "first"
engine = "{os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")}"
address = "{second.address_here}"
link = "1g"
cache_rows = {OPTIONS.cache_rows}

[[hosts]]
name = "second"
engine = "{second.engine}"
address = "{second.address}"
link = "1g"
memory = "1536m"
cache_rows = {OPTIONS.cache_rows}

[ports]
{"".join(f"{name} = {port}" + chr(10) for name, port in ports.items())}
"""
        )
        try:
            yield file, second.address_here, ports
        finally:
            esd("cluster", "down", "--volumes", "--file", str(file))


def states(file: Path) -> list[dict[str, str]]:
    return json.loads(esd("cluster", "status", "--json", "--file", str(file)).splitlines()[-1])


def containers(engine: str, name: str) -> list[dict[str, Any]]:
    """The cluster's containers, as an engine lists them."""
    host = ("--host", engine)
    ids = docker(*host, "ps", "--quiet", "--filter", f"label=esd.cluster={name}").split()
    return json.loads(docker(*host, "inspect", *ids))


def test_a_cluster_of_two_hosts_trains(images, cluster_file, tmp_path, monkeypatch) -> None:
    file, head, ports = cluster_file
    esd("cluster", "up", "--file", str(file))
    assert sorted((each["host"], each["service"], each["health"]) for each in states(file)) == [
        ("first", "dispatcher", "healthy"),
        ("first", "ps_server", "healthy"),
        ("first", "redis", "healthy"),
        ("first", "worker", "healthy"),
        ("second", "worker", "healthy"),
    ]

    esd("cluster", "up", "--file", str(file))  # changes nothing

    certificates = file.parent / "certs"
    secrets = [path.read_text().strip() for path in certificates.glob("*/*") if path.name != "ca.crt"]
    described = tomllib.loads(file.read_text())
    shown = [each for host in described["hosts"] for each in containers(host["engine"], described["name"])]
    assert len(shown) == 5
    assert all(each["HostConfig"]["PidsLimit"] == 1024 for each in shown)
    assert sorted(each["HostConfig"]["Memory"] >> 20 for each in shown) == [1024, 1536, 2048, 2048, 2048]
    assert not any(secret in json.dumps(each) for secret in secrets for each in shown)
    with (
        pytest.raises(TURNED_AWAY),
        DispatcherClient(f"{head}:{ports['dispatcher']}", timeout=5, patience=5) as stranger,
    ):
        stranger.describe()

    for variable, name in CREDENTIALS.items():
        monkeypatch.setenv(variable, str(certificates / "client" / name))
    work = train_attached(
        replace(OPTIONS, model="net:Net"),
        dispatcher=f"{head}:{ports['dispatcher']}",
        parameter_servers=f"{head}:{ports['ps_server']}",
        out=tmp_path,
        credentials=Credentials.load(),
    )
    assert asyncio.run(work).result()["operations"] == simulate_run(OPTIONS)["operations"]
    assert (tmp_path / "model").exists()

    esd("cluster", "down", "--volumes", "--file", str(file))
    assert states(file) == []
    assert described["name"] not in docker("volume", "ls", "--quiet")
