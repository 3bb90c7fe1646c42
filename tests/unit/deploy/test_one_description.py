"""A change of the description of the services is seen in the compose file, a cluster, a kit and the chart."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from tests.support.chart import environment, find, pods, render
from tests.support.source_copy import ROOT, copy_packages, run_python

DESCRIPTION = Path("esd/cluster/services.toml")

CLUSTER = """
import json
from esd.cluster.config import read_cluster
from esd.cluster.containers import containers_of
from pathlib import Path
containers = containers_of(read_cluster(Path("cluster.toml")))
print(json.dumps({each.service: [each.memory, dict(each.environment), each.command] for each in containers}))
"""

HOSTS = """
head = "a"
tls = false
[[hosts]]
name = "a"
engine = "unix:///var/run/docker.sock"
address = "10.0.0.1"
link = "1g"
"""


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the source tree whose description has other values, with the files that are made from it."""
    copy = tmp_path_factory.mktemp("copy")
    copy_packages(copy)
    for folder in ("scripts", "deploy"):
        shutil.copytree(ROOT / folder, copy / folder, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("docker-compose.yml", ".env.example"):
        shutil.copy(ROOT / file, copy)
    text = (copy / DESCRIPTION).read_text()
    for old, new in (
        ("cache_rows = 8000", "cache_rows = 9000"),
        ("grpc = 50051", "grpc = 60051"),
        ('memory = "1g"\nhealth_seconds', 'memory = "3g"\nhealth_seconds'),
        ('image = "esd-worker"', 'image = "esd-edge"'),
        ('"serve", "dispatcher"]', '"serve", "dispatcher", "--log-level", "debug"]'),
    ):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (copy / DESCRIPTION).write_text(text)
    (copy / "cluster.toml").write_text(HOSTS)
    written = run_python(copy, "-m", "scripts.compose")
    assert written.returncode == 0, written.stderr
    return copy


def test_the_compose_file_has_it(changed: Path) -> None:
    services = yaml.safe_load((changed / "docker-compose.yml").read_text())["services"]
    assert services["worker"]["environment"]["ESD_WORKER_CACHE_ROWS"] == "${CACHE_ROWS:-9000}"
    assert services["worker"]["environment"]["ESD_WORKER_DISPATCHER"] == "dispatcher:60051"
    assert services["ps_server"]["mem_limit"] == "${PS_MEMORY:-3g}"
    assert services["dispatcher"]["command"][-1] == "debug"
    example = (changed / ".env.example").read_text()
    assert "\nCACHE_ROWS=9000\n" in example
    assert "\nPS_MEMORY=3g\n" in example
    assert "\nDISPATCHER_PORT=60051\n" in example


def test_a_cluster_has_it(changed: Path) -> None:
    run = run_python(changed, "-c", CLUSTER)
    assert run.returncode == 0, run.stderr
    containers = json.loads(run.stdout)
    assert containers["worker"][1]["ESD_WORKER_CACHE_ROWS"] == "9000"
    assert containers["worker"][1]["ESD_WORKER_DISPATCHER"] == "10.0.0.1:60051"
    assert containers["ps_server"][0] == 3 * 2**30
    assert containers["dispatcher"][2][-1] == "debug"


def test_a_cluster_and_compose_pass_on_where_traces_go(changed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://10.0.0.9:4318")
    monkeypatch.delenv("OTEL_TRACES_SAMPLER", raising=False)
    run = run_python(changed, "-c", CLUSTER)
    assert run.returncode == 0, run.stderr
    services = yaml.safe_load((changed / "docker-compose.yml").read_text())["services"]
    for service, (_, variables, _) in json.loads(run.stdout).items():
        if service != "redis":
            assert variables["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://10.0.0.9:4318"
            assert "OTEL_TRACES_SAMPLER" not in variables
            named = services[service]["environment"]  # without values, which the engine's client has
            assert named["OTEL_EXPORTER_OTLP_ENDPOINT"] is named["OTEL_TRACES_SAMPLER"] is None


def test_a_kit_has_it(changed: Path) -> None:
    run = run_python(changed, "-m", "esd.cli", "cluster", "kit", "a")
    assert run.returncode == 0, run.stderr
    kit = changed / "kit-a"
    worker = (kit / "settings" / "worker" / "environment").read_text()
    assert 'ESD_WORKER_CACHE_ROWS="9000"\n' in worker
    assert 'ESD_WORKER_DISPATCHER="10.0.0.1:60051"\n' in worker
    assert f"MemoryMax={3 * 2**30}\n" in (kit / "units" / "esd-ps_server.service").read_text()
    assert "--log-level debug\n" in (kit / "units" / "esd-dispatcher.service").read_text()


def test_the_chart_has_it(changed: Path) -> None:
    objects = render({}, changed / "deploy" / "chart")
    found = pods(objects)
    variables = environment(found["esd-worker-edge-1"])
    assert variables["ESD_WORKER_CACHE_ROWS"] == "9000"
    assert variables["ESD_WORKER_DISPATCHER"] == "esd-dispatcher:60051"
    assert find(objects, "Service", "esd-dispatcher")["spec"]["ports"][0]["port"] == 60051
    assert found["esd-ps"]["containers"][0]["resources"]["requests"]["memory"] == "3Gi"
    assert found["esd-worker-edge-1"]["containers"][0]["image"] == "esd-edge:local"
    assert found["esd-dispatcher"]["containers"][0]["command"][-1] == "debug"


def test_a_cluster_and_the_chart_give_a_service_the_same_settings() -> None:
    run = run_python(ROOT, "-c", CLUSTER.replace('"cluster.toml"', '"deploy/cluster.toml"'))
    assert run.returncode == 0, run.stderr
    containers = json.loads(run.stdout)
    found = pods(render({}))
    for service, workload in (
        ("ps_server", "esd-ps"),
        ("dispatcher", "esd-dispatcher"),
        ("worker", "esd-worker-edge-1"),
    ):
        ours, theirs = environment(found[workload]), containers[service][1]
        shared = {name for name in ours.keys() & theirs.keys() if not name.endswith(("_NAME", "_STORE", "_DEVICE"))}
        assert len(shared) >= 3
        for name in shared:
            ports = name.endswith(("_LISTEN", "_DISPATCHER"))
            assert ours[name].rpartition(":")[2] == theirs[name].rpartition(":")[2] if ports else True, name
            assert ports or name == "ESD_WORKER_LINK" or ours[name] == theirs[name], name
