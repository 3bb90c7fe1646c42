"""The rules of .importlinter fail when an import points up, for every floor and every room."""

from __future__ import annotations

import re
import shutil

import pytest

from tests.support.source_copy import PACKAGES, ROOT, copy_packages, run_python

LINT = "from importlinter.cli import lint_imports_command as lint; lint(['--no-logo'])"

UPWARD = [
    # importer, imported, words of the rule's name
    ("esd.protos", "esd.services.domain.errors", "The floors"),
    ("esd.native", "esd.services.domain.errors", "The floors"),
    ("esd.services.domain", "esd.data", "The floors"),
    ("esd.run", "esd.cli", "The floors"),
    ("esd.run", "esd.advice", "The floors"),
    ("esd.run", "esd.cluster", "The floors"),
    ("esd.advice", "esd.cluster", "The floors"),
    ("esd.advice", "esd.cli", "The floors"),
    ("esd.cluster", "esd.cli", "The floors"),
    ("esd.data", "esd.run", "The floors"),
    ("esd.services.wire", "esd.services.runtime", "What the services share"),
    ("esd.services.runtime", "esd.services.clients", "What the services share"),
    ("esd.services.clients", "esd.dispatcher.core", "The floors"),
    ("esd.services.runtime", "esd.dispatcher.core", "The floors"),
    ("esd.services.domain", "esd.cli", "The floors"),
    ("esd.worker.core", "esd.data", "The floors"),
    ("esd.dispatcher.solvers", "esd.dispatcher.core", "The dispatcher"),
    ("esd.dispatcher.core", "esd.dispatcher.service", "The dispatcher"),
    ("esd.dispatcher.core", "esd.dispatcher.simulator", "The dispatcher"),
    ("esd.dispatcher.service", "esd.dispatcher.simulator", "The dispatcher"),
    ("esd.dispatcher.service", "esd.worker.core", "The floors"),
    ("esd.dispatcher.service.state", "esd.dispatcher.service.checkpoint", "Inside the dispatcher's service"),
    ("esd.dispatcher.service.checkpoint", "esd.dispatcher.service.run", "Inside the dispatcher's service"),
    ("esd.dispatcher.service.run", "esd.dispatcher.service.describe", "Inside the dispatcher's service"),
    ("esd.dispatcher.service.page", "esd.dispatcher.service.servicer", "Inside the dispatcher's service"),
    ("esd.dispatcher.simulator", "esd.cli", "The floors"),
    ("esd.worker.core", "esd.worker.models", "The worker"),
    ("esd.worker.models", "esd.worker.training", "The worker"),
    ("esd.worker.training", "esd.worker.service", "The worker"),
    ("esd.worker.service", "esd.ps_server.core", "The floors"),
    ("esd.ps_server.core", "esd.ps_server.stores", "The parameter server"),
    ("esd.ps_server.stores", "esd.ps_server.service", "The parameter server"),
    ("esd.ps_server.stores.directory", "esd.ps_server.stores.redis.connection", "The stores of the parameter server"),
    ("esd.ps_server.stores.redis", "esd.ps_server.stores.by_url", "The stores of the parameter server"),
    ("esd.ps_server.service", "esd.dispatcher.core", "The floors"),
    ("esd.ps_server.service", "benchmarks", "Nothing imports the benchmarks"),
    ("esd.cli", "benchmarks", "Nothing imports the benchmarks"),
    ("hardening", "benchmarks", "Nothing imports the benchmarks"),
    ("tests.conftest", "benchmarks", "Nothing imports the benchmarks"),
    ("benchmarks", "tests.support.command", "Above the package"),
    ("benchmarks", "hardening", "Above the package"),
    ("tests.support.command", "hardening", "Above the package"),
    ("testbed", "tests.support.command", "Above the package"),
    ("testbed", "benchmarks.alpha", "Above the package"),
    ("esd.services.domain", "testbed", "Above the package"),
    ("esd.dispatcher.core", "grpc", "Cores and the vocabulary"),
    ("esd.worker.core", "esd.protos", "Cores and the vocabulary"),
    ("esd.ps_server.core", "esd.services.runtime", "Cores and the vocabulary"),
    ("esd.services.domain", "pydantic", "Cores and the vocabulary"),
    ("esd.ps_server.service", "redis", "redis"),
    ("esd.run", "confluent_kafka", "The clients of Kafka and NATS"),
    ("esd.data.logs.dataset", "nats", "The clients of Kafka and NATS"),
    ("esd.dispatcher.service", "torch", "torch"),
    ("esd.run", "esd.worker.training.scorer", "The driver, the dispatcher and the parameter server"),
    ("esd.worker.service", "prometheus_client", "prometheus_client"),
    ("esd.services.runtime.tracing", "opentelemetry", "OpenTelemetry"),
    ("esd.run", "rich", "typer and rich"),
    ("esd.advice", "typer", "typer and rich"),
    ("esd.cluster", "rich", "typer and rich"),
]


CIRCLES = [
    # importer, its neighbour that imports it
    ("esd.dispatcher.core.mechanisms", "esd.dispatcher.core.planner"),
    ("esd.data.readers", "esd.data.opening"),
]


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The messages of each rule, by its name, for a copy of the tree with all of these imports."""
    copy = tmp_path_factory.mktemp("source")
    copy_packages(copy, (*PACKAGES, "benchmarks", "examples", "hardening", "scripts", "testbed", "tests"))
    shutil.copy(ROOT / ".importlinter", copy)
    kept = run_python(copy, "-c", LINT)
    assert kept.returncode == 0, kept.stdout
    for importer, imported, *_ in [*UPWARD, *CIRCLES]:
        folder = copy.joinpath(*importer.split("."))
        with (folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")).open("a") as file:
            file.write(f"\nimport {imported}\n")
    finished = run_python(copy, "-c", LINT)
    assert finished.returncode == 1, finished.stdout
    _, *titled = re.split(r"\n([^\n]+)\n-+\n", finished.stdout)
    return dict(zip(titled[::2], titled[1::2], strict=True))


@pytest.mark.parametrize(("importer", "imported", "rule"), UPWARD)
def test_an_import_that_points_up_is_found(broken: dict[str, str], importer: str, imported: str, rule: str) -> None:
    (said,) = (text for name, text in broken.items() if name.startswith(rule))
    assert re.search(rf"^- +{importer} -> {imported} \(l", said, re.MULTILINE), said


@pytest.mark.parametrize(("importer", "imported"), CIRCLES)
def test_a_circle_of_neighbours_is_found(broken: dict[str, str], importer: str, imported: str) -> None:
    said = broken["Neighbours never import each other in a circle"]
    (shared,) = {module.rpartition(".")[0] for module in (importer, imported)}
    assert f"No cycles are allowed in {shared}." in said
