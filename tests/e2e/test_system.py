"""`docker compose up`: all services, four workers with links of 50 and 5 Mbit/s, and the run of the driver."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Iterator

import numpy as np
import pytest

from esd.services.clients.dispatcher import DispatcherClient
from tests.e2e.compose import Project, docker, inspect, log_of, wait_until
from tests.e2e.system import (
    FIRST_ITERATION_SECONDS,
    LINKS,
    TRAINED,
    System,
    cache_rows,
    expected_model,
    expected_operations,
    train_options,
)
from tests.e2e.transfer import megabits_per_second
from tests.support.models import distance, model_arrays

SERVICES = {"redis": 1, "ps_server": 1, "dispatcher": 1, "worker": 4, "driver": 1, "prometheus": 1}
UNPRIVILEGED = set(SERVICES) - {"worker"}  # with deploy/shape.yml, workers set up their links as root

PRINT_STATUS_OF_WORKER = """
import pathlib
for process in pathlib.Path("/proc").glob("[0-9]*"):
    if (process / "cmdline").read_bytes().split(b"\\0")[1:3] == [b"-m", b"esd.worker"]:
        print((process / "status").read_text())
"""

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def system(images, project_names, tmp_path_factory) -> Iterator[System]:
    project = Project(
        next(project_names),
        files=("deploy/shape.yml",),
        variables={
            "WORKERS": str(TRAINED.workers),
            "LINKS": LINKS,
            "CACHE_ROWS": str(cache_rows()),
            "TRAIN": train_options(TRAINED.mechanism),
        },
    )
    try:
        yield System.start(project, tmp_path_factory.mktemp("model"))
    finally:
        project.down()


def test_the_first_iteration_comes_soon(system: System) -> None:
    assert system.first_iteration_seconds < FIRST_ITERATION_SECONDS


def test_every_service_runs_and_is_healthy(system: System) -> None:
    assert {service: len(system.project.containers(service)) for service in SERVICES} == SERVICES
    for service in set(SERVICES) - {"driver", "prometheus"}:
        for container in system.project.containers(service):
            wait_until(lambda c=container: inspect(c)["State"]["Health"]["Status"] == "healthy", 180)


def test_containers_may_do_only_what_they_need(system: System) -> None:
    for service in SERVICES:
        for container in map(inspect, system.project.containers(service)):
            host = container["HostConfig"]
            assert host["ReadonlyRootfs"]
            assert host["CapDrop"] == ["ALL"]
            assert host["SecurityOpt"] == ["no-new-privileges:true"]
            assert host["Memory"] > 0
            assert host["PidsLimit"] == 1024
            assert container["Config"]["StopTimeout"] > 5  # seconds of grace in the services' settings
            assert host["RestartPolicy"]["Name"] == ("no" if service == "driver" else "unless-stopped")
            if service in UNPRIVILEGED:
                assert host["CapAdd"] is None
                assert all(int(number) > 0 for number in container["Config"]["User"].split(":"))


def test_workers_give_up_what_shaping_needs(system: System) -> None:
    for container in system.project.containers("worker"):
        status = docker("exec", container, "python3", "-c", PRINT_STATUS_OF_WORKER)
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        assert set(fields["Uid"].split()) == set(fields["Gid"].split()) == {"10001"}
        assert int(fields["CapEff"], 16) == int(fields["CapPrm"], 16) == 0
        assert fields["NoNewPrivs"] == "1"


def test_logs_are_json(system: System) -> None:
    for service in ("ps_server", "dispatcher", "worker"):
        for container in system.project.containers(service):
            for line in log_of(container).splitlines():
                assert isinstance(json.loads(line), dict)


def test_links_are_as_slow_as_configured(system: System) -> None:
    (server,) = system.project.containers("ps_server")
    for worker, link in zip(system.project.containers("worker"), (50, 50, 5, 5), strict=True):
        for sender, receiver in ((worker, server), (server, worker)):
            # A machine that is busy or stands still may be slower than its links for a while, never faster.
            rates = [megabits_per_second(system.project, sender, receiver)]
            while rates[-1] <= 0.25 * link and len(rates) < 5:
                rates.append(megabits_per_second(system.project, sender, receiver))
            assert 0.25 * link < max(rates) < 1.05 * link, (sender, receiver)


def test_operations_are_as_simulated(system: System) -> None:
    assert system.result["iterations"] == TRAINED.iterations
    assert system.result["operations"] == expected_operations()


def test_prometheus_has_counted_the_same_operations(system: System) -> None:
    expected = {
        (op, str(slot)): count for op, counts in expected_operations().items() for slot, count in enumerate(counts)
    }
    counted = "sum by (op, worker) (esd_embedding_transfers_total)"
    wait_until(lambda: system.query(counted) == expected, 110)
    targets = {("dispatcher",): 1, ("ps_server",): 1, ("worker",): 4}
    wait_until(lambda: system.query("sum by (job) (up)") == targets, 110)


def test_prometheus_evaluates_the_rules_and_nothing_is_alarming(system: System) -> None:
    wait_until(lambda: system.query("esd:store_seconds:p99_5m"), 110)
    assert 0 < system.query("esd:cache_hit_ratio:rate5m")[("esd:cache_hit_ratio:rate5m",)] < 1
    wait_until(lambda: system.query('ALERTS{alertstate="firing"}') == {}, 60)  # those of a stall end soon


def test_the_page_shows_the_job(system: System) -> None:
    address = system.project.address("dispatcher", 8080)
    with urllib.request.urlopen(f"http://{address}/", timeout=60) as answer:
        assert answer.headers["Content-Type"].startswith("text/html")
    with urllib.request.urlopen(f"http://{address}/state.json", timeout=60) as answer:
        shown = json.load(answer)
    assert (shown["job"]["phase"], shown["iterations_confirmed"]) == ("finished", TRAINED.iterations)
    moved = [worker["transfers"]["miss_pull"] for worker in shown["workers"]]
    assert moved == system.result["operations"]["miss_pull"]
    assert {cost["mechanism"] for cost in shown["costs"]} == {"joint", "random", "laia", "hash"}


def test_the_model_is_that_of_one_process(system: System) -> None:
    expected = expected_model()
    model = model_arrays(system.model)
    np.testing.assert_array_equal(model["ids"], expected.ids)
    np.testing.assert_array_equal(model["versions"], expected.versions)
    assert distance(model["rows"], expected.rows) < 1e-4
    dense = [(model[f"dense/{name}"].ravel(), values.ravel()) for name, values in expected.dense.items()]
    ours, theirs = (np.concatenate(values) for values in zip(*dense, strict=True))
    assert distance(ours, theirs) < 1e-4


def test_the_dispatcher_answers_from_outside(system: System) -> None:
    with DispatcherClient(system.project.address("dispatcher", 50051)) as client:
        costs = np.array([[0, 5], [5, 0], [0, 1], [2, 2]], np.int32)
        assert client.hybrid_dis(costs, np.array([2, 2], np.int32)).assignment.tolist() == [0, 1, 0, 1]


def test_mechanisms_at_the_same_links(system: System, capsys) -> None:
    others = ("random", "laia", "esd")
    results = {mechanism: system.train(mechanism) for mechanism in others} | {TRAINED.mechanism: system.result}
    with capsys.disabled():
        sys.stdout.write(
            f"\n\n{table(results)}\n\nfirst iteration {system.first_iteration_seconds:.1f} s after `up`\n\n"
        )
    costs = {mechanism: result["cost_seconds"] for mechanism, result in results.items()}
    assert costs["joint"] < costs["esd"] < costs["laia"] < costs["random"]
    assert all(result["auc"] == pytest.approx(system.result["auc"], abs=1e-3) for result in results.values())


def test_nothing_is_left_behind(system: System) -> None:
    project = system.project
    project.down()
    assert project.containers() == []
    assert project.volumes() == []
    assert not any(network["Containers"] for network in project.networks())


def table(results: dict[str, dict]) -> str:
    """In Markdown, as in docs/benchmarks/system.md."""
    lines = [
        "| dispatch | iterations/s | against random | against laia | rows moved | cost, s | makespan, s | hit ratio |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for mechanism, result in results.items():
        speed = result["iterations_per_second"]
        moved = sum(sum(result["operations"][kind]) for kind in ("miss_pull", "update_push", "evict_push"))
        lines.append(
            f"| {mechanism} | {speed:.2f} | {speed / results['random']['iterations_per_second']:.2f} x "
            f"| {speed / results['laia']['iterations_per_second']:.2f} x | {moved:,} | {result['cost_seconds']:.1f} "
            f"| {result['makespan_seconds']:.1f} | {result['hit_ratio']:.3f} |"
        )
    return "\n".join(lines)
