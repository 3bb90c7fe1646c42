"""One cluster for all tests, with the images of the end-to-end tests; a namespace and a release for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.compose import ROOT, Project, docker
from tests.kubernetes.cluster import Kubernetes, kubernetes
from tests.kubernetes.release import Release

BUILD_SECONDS = 600


@pytest.fixture(scope="session")
def images() -> None:
    docker("build", "--quiet", "--tag", "esd-e2e-pause", "--target", "pause", str(ROOT / "tests/e2e"), timeout=240)
    Project("esd-e2e-build").must("build", "ps_server", "worker", timeout=BUILD_SECONDS)
    for image in ("esd-service", "esd-worker"):
        docker("tag", f"{image}:e2e", f"{image}:next")  # what an upgrade asks for


@pytest.fixture(scope="session")
def cluster(images: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubernetes]:
    with kubernetes(tmp_path_factory.mktemp("kubernetes")) as running:
        yield running


@pytest.fixture
def release(cluster: Kubernetes, request: pytest.FixtureRequest) -> Iterator[Release]:
    namespace = request.node.name.replace("_", "-")[:60].rstrip("-")
    with Release.in_namespace(cluster, namespace) as made:
        yield made
