"""The rules of .importlinter fail when somebody adds an import that points up, for every floor and every room."""

from __future__ import annotations

import re
import shutil

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
    ("dispatcher.core", "grpc", "Cores and the vocabulary"),
    ("worker.core", "protos", "Cores and the vocabulary"),
    ("ps_server.core", "services.runtime", "Cores and the vocabulary"),
    ("services.domain", "pydantic", "Cores and the vocabulary"),
    ("ps_server.service", "redis", "redis"),
    ("dispatcher.service", "torch", "torch"),
    ("worker.service", "prometheus_client", "prometheus_client"),
]


CIRCLES = [
    # importer, its neighbour that imports it
    ("dispatcher.core.mechanisms", "dispatcher.core.planner"),
    ("esd.cli.cluster", "esd.cli.main"),
]


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each rule says of a copy of the tree with all of these imports, by the rule's name."""
    copy = tmp_path_factory.mktemp("source")
    copy_packages(copy, (*PACKAGES, "benchmarks", "examples", "scripts"))
    shutil.copy(ROOT / ".importlinter", copy)
    kept = run_python(copy, "-c", LINT)
    assert kept.returncode == 0, kept.stdout
    for importer, imported, *_ in [*UPWARD, *CIRCLES]:
        with copy.joinpath(*importer.split("."), "__init__.py").open("a") as file:
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
