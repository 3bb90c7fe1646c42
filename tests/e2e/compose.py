"""A project of the compose file on a real engine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from esd.services.domain.errors import DeadlineExceeded, Unauthenticated, Unavailable

ROOT = Path(__file__).parents[2]
COMPOSE = ["docker-compose"] if shutil.which("docker-compose") else ["docker", "compose"]

IMAGES = {
    "ESD_VERSION": "e2e",
    "BASE_IMAGE": "esd-e2e-base",
    "BUILDER_IMAGE": "esd-e2e-base",  # without pip and compiler: what is built here takes the wheels of build/wheels
    "REDIS_IMAGE": "esd-e2e-redis",
    "PROMETHEUS_IMAGE": "esd-e2e-prometheus",
}

# Any free port.
PORTS = {"DISPATCHER_PORT": "0", "PROMETHEUS_PORT": "0", "PAGE_PORT": "0"}

# What a client in the clear gets of a port with TLS. Connections are closed on it, and gRPC repeats the call until its
# attempts are used up, or its time on a busy machine.
TURNED_AWAY = (Unauthenticated, Unavailable, DeadlineExceeded)


def docker(*arguments: str, timeout: float = 110.0) -> str:
    """The output of a docker command that has to work."""
    done = subprocess.run(["docker", *arguments], check=False, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, f"docker {' '.join(arguments)}:\n{done.stderr}"
    return done.stdout


@dataclass
class Project:
    """Containers, networks and volumes under one name.

    Attributes:
        name: name of the project.
        files: overlays of docker-compose.yml, relative to the repository.
        variables: variables of the compose files, in addition to the variables of the test images.
        root: the source tree.
    """

    name: str
    files: Sequence[str | Path] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    root: Path = ROOT

    def compose(self, *arguments: str, timeout: float = 600.0) -> subprocess.CompletedProcess[str]:
        """Runs a compose command to its end, also if it fails."""
        files = [argument for file in ("docker-compose.yml", *self.files) for argument in ("--file", str(file))]
        # Not the .env file of whoever runs the tests.
        command = [*COMPOSE, "--env-file", ".env.example", "--project-name", self.name, *files, *arguments]
        environment = os.environ | IMAGES | PORTS | dict(self.variables) | {"DOCKER_BUILDKIT": "0"}
        return subprocess.run(
            command, check=False, cwd=self.root, env=environment, capture_output=True, text=True, timeout=timeout
        )

    def must(self, *arguments: str, timeout: float = 600.0) -> str:
        """The output of a compose command that has to work."""
        done = self.compose(*arguments, timeout=timeout)
        assert done.returncode == 0, f"{' '.join(arguments)}:\n{done.stdout}\n{done.stderr}\n{self.logs()}"
        return done.stdout

    def down(self) -> None:
        """Removes containers, networks and volumes.

        An engine that stops a container while it restarts it may go on counting its place in a network, and then keeps
        the empty network until its own end (seen with Docker 20.10), where compose gives up. The project is not to
        blame for that.
        """
        done = self.compose("down", "--volumes", "--remove-orphans", timeout=240)
        if done.returncode:
            known = "has active endpoints" in done.stderr and not self.containers()
            assert known, f"{done.stdout}\n{done.stderr}\n{self.logs()}"
            for volume in self.volumes():
                docker("volume", "rm", volume)

    def containers(self, service: str = "") -> list[str]:
        """Ids, in the order of their numbers."""
        ids = docker(
            "ps", "--all", "--quiet", "--filter", f"label=com.docker.compose.project={self.name}",
            *(("--filter", f"label=com.docker.compose.service={service}") if service else ()),
        ).split()  # fmt: skip
        return sorted(ids, key=_number)

    def volumes(self) -> list[str]:
        """Names."""
        return docker("volume", "ls", "--quiet", "--filter", f"label=com.docker.compose.project={self.name}").split()

    def networks(self) -> list[dict[str, Any]]:
        """Everything that the engine knows about each network, with the containers that are in it."""
        ids = docker("network", "ls", "--quiet", "--filter", f"label=com.docker.compose.project={self.name}").split()
        return json.loads(docker("network", "inspect", *ids)) if ids else []

    def address(self, service: str, port: int) -> str:
        """Where a published port is reached from here."""
        return self.must("port", service, str(port)).strip()

    def logs(self, *services: str) -> str:
        """The output of the containers."""
        return self.compose("logs", "--no-color", *services).stdout

    def result(self, output: str) -> dict[str, Any]:
        """The driver's result: the last line that is a JSON object."""
        lines = [line[line.index("{") :] for line in output.splitlines() if '{"iterations"' in line]
        return json.loads(lines[-1])

    def exit_of(self, service: str, timeout: float) -> int:
        """Waits for the one container of a service to end, and returns its exit code."""
        return int(docker("wait", self.containers(service)[0], timeout=timeout))


def log_of(container: str) -> str:
    """The output of one container, without prefixes."""
    done = subprocess.run(
        ["docker", "logs", container], check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return done.stdout


def _number(container: str) -> int:
    return int(inspect(container)["Config"]["Labels"]["com.docker.compose.container-number"])


def inspect(container: str) -> dict[str, Any]:
    """Everything the engine knows about a container."""
    return json.loads(docker("inspect", container))[0]


def wait_until(condition, seconds: float, pause: float = 0.2) -> float:
    """Asks until the condition holds; returns the seconds that took. The last error is the reason for a failure."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < seconds, f"not so within {seconds} s: {condition}"
        time.sleep(pause)  # the engine has no event for it
    return time.monotonic() - started
