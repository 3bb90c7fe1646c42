"""The stack that deploy/stack makes of the compose file, on a swarm of one node."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.compose import ROOT, Project, docker, wait_until

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def swarm() -> Iterator[None]:
    """Makes the engine a swarm's only node, unless it is in one."""
    if docker("info", "--format", "{{.Swarm.LocalNodeState}}").strip() == "active":
        yield
        return
    docker("swarm", "init", "--advertise-addr", "127.0.0.1")
    try:
        yield
    finally:
        docker("swarm", "leave", "--force")
        docker("network", "rm", "docker_gwbridge")


def test_the_stack_trains(images, swarm, project_names, tmp_path: Path) -> None:
    variables = {"WORKERS": "2", "LINKS": "500m,50m", "TRAIN": "--data flights --iterations 20"}
    project = Project(next(project_names), variables=variables)
    made = subprocess.run(
        [sys.executable, ROOT / "deploy/stack"],
        input=project.must("config"),
        check=True,
        capture_output=True,
        text=True,
    )
    stack = tmp_path / "stack.json"
    stack.write_text(made.stdout)
    docker("stack", "deploy", "--resolve-image", "never", "--compose-file", str(stack), project.name)
    try:
        result = _result(f"{project.name}_driver", 300)
        assert result["iterations"] == 20
        assert [len(counts) for counts in result["operations"].values()] == [2] * 4
    finally:
        _remove(project.name)


def _result(driver: str, seconds: float) -> dict:
    def lines() -> list[str]:
        return [line for line in docker("service", "logs", "--raw", driver).splitlines() if '"iterations"' in line]

    wait_until(lines, seconds)
    return json.loads(lines()[-1])


def _remove(name: str) -> None:
    """Removes the stack, and its volumes as soon as no container has them any more."""
    docker("stack", "rm", name)
    label = ("--filter", f"label=com.docker.stack.namespace={name}", "--quiet")
    wait_until(lambda: not docker("ps", "--all", *label), 180)
    wait_until(lambda: not docker("network", "ls", *label), 180)
    for volume in docker("volume", "ls", *label).split():
        docker("volume", "rm", volume)
