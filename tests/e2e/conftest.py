"""Images are built once; every project is removed, also after a failed test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.e2e.compose import ROOT, Project, docker

BUILD_SECONDS = 600


@pytest.fixture(scope="session")
def images() -> None:
    """Builds the images of the projects."""
    for target in ("redis", "prometheus"):
        docker(
            "build", "--quiet", "--tag", f"esd-e2e-{target}", "--target", target, str(ROOT / "tests/e2e"), timeout=240
        )
    Project("esd-e2e-build").must("build", "ps_server", "worker", timeout=BUILD_SECONDS)


@pytest.fixture(scope="session")
def project_names() -> Iterator[str]:
    """Names that no other run on this engine uses."""
    return (f"esd-e2e-{os.getpid()}-{number}" for number in range(1, 100))


@pytest.fixture
def new_project(images, project_names) -> Iterator[Callable[..., Project]]:
    """Makes projects that are removed after the test."""
    with ExitStack() as stack:

        def make(**settings) -> Project:
            project = Project(next(project_names), **settings)
            stack.callback(project.down)
            return project

        yield make
