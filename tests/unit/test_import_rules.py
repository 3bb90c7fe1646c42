"""The rules of .importlinter fail when somebody adds an import that points up, for every floor and every room."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.source_copy import PACKAGES, ROOT, copy_packages, run_python

LINT = "from importlinter.cli import lint_imports_command as lint; lint(['--no-logo'])"

UPWARD = [
    # importer, imported, words of the rule's name
    ("protos", "services.domain.errors", "The floors"),
    ("esd_native", "services.domain.errors", "The floors"),
    ("services.domain", "services.data", "What the services share"),
    ("services.data", "services.wire", "What the services share"),
    ("services.wire", "services.runtime", "What the services share"),
    ("services.runtime", "services.clients", "What the services share"),
    ("services.clients", "dispatcher.core", "The floors"),
    ("services.runtime", "dispatcher.core", "The floors"),
    ("services.domain", "esd.cli", "The floors"),
    ("dispatcher.solvers", "dispatcher.core", "The dispatcher"),
    ("dispatcher.core", "dispatcher.service", "The dispatcher"),
    ("dispatcher.core", "dispatcher.simulator", "The dispatcher"),
    ("dispatcher.service", "dispatcher.simulator", "The dispatcher"),
    ("dispatcher.service", "worker.core", "The floors"),
    ("dispatcher.service.state", "dispatcher.service.checkpoint", "Inside the dispatcher's service"),
    ("dispatcher.service.checkpoint", "dispatcher.service.run", "Inside the dispatcher's service"),
    ("dispatcher.service.run", "dispatcher.service.describe", "Inside the dispatcher's service"),
    ("dispatcher.service.page", "dispatcher.service.servicer", "Inside the dispatcher's service"),
    ("dispatcher.simulator", "esd.cli", "The floors"),
    ("worker.core", "worker.models", "The worker"),
    ("worker.models", "worker.training", "The worker"),
    ("worker.training", "worker.service", "The worker"),
    ("worker.service", "ps_server.core", "The floors"),
    ("ps_server.core", "ps_server.stores", "The parameter server"),
    ("ps_server.stores", "ps_server.service", "The parameter server"),
    ("ps_server.stores.directory", "ps_server.stores.redis.connection", "The stores of the parameter server"),
    ("ps_server.stores.redis", "ps_server.stores.by_url", "The stores of the parameter server"),
    ("ps_server.service", "dispatcher.core", "The floors"),
    ("ps_server.service", "benchmarks", "Nothing imports the benchmarks"),
    ("esd.cli", "benchmarks", "Nothing imports the benchmarks"),
    ("dispatcher.core.mechanisms", "dispatcher.core.planner", "Neighbours"),
    ("esd.cli.cluster", "esd.cli.main", "Neighbours"),
    ("dispatcher.core", "grpc", "Cores and the vocabulary"),
    ("worker.core", "protos", "Cores and the vocabulary"),
    ("ps_server.core", "services.runtime", "Cores and the vocabulary"),
    ("services.domain", "pydantic", "Cores and the vocabulary"),
    ("ps_server.service", "redis", "redis"),
    ("dispatcher.service", "torch", "torch"),
    ("worker.service", "prometheus_client", "prometheus_client"),
]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the source tree that keeps the rules."""
    directory = tmp_path_factory.mktemp("source")
    copy_packages(directory, (*PACKAGES, "benchmarks", "examples", "scripts"))
    shutil.copy(ROOT / ".importlinter", directory)
    return directory


@pytest.fixture
def package(copy: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """The __init__.py of a package of the copy, put back afterwards."""
    file = copy.joinpath(*request.param.split("."), "__init__.py")
    text = file.read_text() if file.exists() else ""
    yield file
    file.write_text(text)


def test_the_tree_keeps_the_rules(copy: Path) -> None:
    finished = run_python(copy, "-c", LINT)
    assert finished.returncode == 0, finished.stdout


@pytest.mark.parametrize(("package", "imported", "rule"), UPWARD, indirect=["package"])
def test_an_import_that_points_up_is_found(copy: Path, package: Path, imported: str, rule: str) -> None:
    with package.open("a") as file:
        file.write(f"\nimport {imported}\n")
    finished = run_python(copy, "-c", LINT)
    assert finished.returncode == 1, finished.stdout
    broken = [line for line in finished.stdout.splitlines() if " BROKEN" in line]
    assert any(line.startswith(rule) for line in broken), finished.stdout
