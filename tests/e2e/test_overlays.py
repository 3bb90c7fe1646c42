"""Overlays of the compose file at work together: Redis Cluster, and TLS with client certificates and a token."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from esd.services.clients.dispatcher import DispatcherClient
from esd.services.domain.state import JobPhase
from esd.services.runtime.security import Credentials
from esd.services.runtime.settings import ClientSettings
from tests.e2e.compose import TURNED_AWAY, Project, docker, inspect
from tests.support.certificates import Certificates

pytestmark = pytest.mark.timeout(600)

SERVICES_USER = 10001
PASSWORD = "secret-4712"
CLUSTER_NODES = "redis-cli cluster nodes"


@pytest.fixture
def certificates(tmp_path) -> Certificates:
    names = ("ps_server", "dispatcher", "worker", "client")
    made = Certificates.make(tmp_path / "certs", *names)
    for name in names:
        for file in (made.directory / name, *(made.directory / name).iterdir()):
            os.chown(file, SERVICES_USER, SERVICES_USER)
    return made


def cluster_nodes(project: Project) -> list[str]:
    """Role of each node, as the first one knows them."""
    (first,) = project.containers("redis")
    ask = f"REDISCLI_AUTH=$(cat /run/secrets/redis_password) {CLUSTER_NODES}"
    lines = docker("exec", first, "sh", "-c", ask).splitlines()
    return sorted(line.split()[2].removeprefix("myself,") for line in lines)


def refused(project: Project) -> bool:
    """Whether a node refuses clients without a password."""
    (first,) = project.containers("redis")
    return "NOAUTH" in docker("exec", first, *CLUSTER_NODES.split())


def running(container: str) -> bool:
    return inspect(container)["State"]["Running"]


def phase(address: str, credentials: Credentials) -> JobPhase:
    with DispatcherClient(address, credentials=credentials, timeout=5) as client:
        return client.describe().phase


@pytest.fixture
def password_file(tmp_path) -> Path:
    file = tmp_path / "redis"
    file.write_text(f"{PASSWORD}\n")
    file.chmod(0o444)
    return file


def test_a_run_over_tls_into_a_redis_cluster(new_project, certificates, password_file) -> None:
    project = new_project(
        files=["deploy/redis-cluster.yml", "deploy/tls.yml"],
        variables={
            "WORKERS": "2",
            "CERTS_DIR": str(certificates.directory),
            "REDIS_PASSWORD_FILE": str(password_file),
            "TRAIN": "--data flights --iterations 20 --sync on-demand --direct",
        },
    )
    project.must("up", "--detach", timeout=240)
    assert project.exit_of("driver", timeout=400) == 0, project.logs()
    result = project.result(project.logs("driver"))
    assert result["iterations"] == 20
    assert sum(result["direct"]["rows"]) > 0, "workers reach each other, too"
    assert cluster_nodes(project) == ["master"] * 3 + ["slave"] * 3

    address = project.address("dispatcher", 50051)
    ours = ClientSettings(**certificates.of("client", token=True))
    assert phase(address, Credentials.read(ours)) is JobPhase.FINISHED
    with pytest.raises(TURNED_AWAY):
        phase(address, Credentials())
    processes = "".join(docker("top", container) for container in project.containers() if running(container))
    shown = project.logs() + processes + "".join(str(inspect(container)) for container in project.containers())
    assert "redis-server" in shown
    assert not any(secret in shown for secret in (PASSWORD, *certificates.secrets()))
    assert refused(project)
