"""The rivals train the model of one machine, over cards that the kernel holds, in their shares of a processor."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

import pytest

from benchmarks.rivals.ours import judged_by
from benchmarks.rivals.plans import Plan
from benchmarks.rivals.processes import Bound, Line
from benchmarks.rivals.runs import DDP, PLAIN, Place, run_alone, run_ours, run_rival
from benchmarks.rivals.task import Task
from benchmarks.rivals.topologies import Topology
from testbed.processor_shares import processor_shares, unavailable

ITERATIONS, EVERY, MACHINES = 24, 16, 2
FAST = Topology("1g")

pytestmark = pytest.mark.skipif(
    bool(unavailable())
    or subprocess.run(["unshare", "-n", "tc", "qdisc"], check=False, capture_output=True).returncode,
    reason="network namespaces and control groups need root, and iproute2",
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("rivals")
    Task.of("flights", 256, ITERATIONS, EVERY).write(folder)
    with processor_shares(*[1.0] * (1 + MACHINES)) as (hub, *shares):
        yield Place(folder, hub, shares)


@pytest.fixture(scope="module")
def alone(place: Place) -> dict[int, dict[str, float]]:
    return {line.iteration: line.figures for line in run_alone(place)}


@pytest.fixture(scope="module")
def ran(place: Place) -> Callable[[str], list[Line]]:
    return cache(lambda rival: run_rival(place, FAST, rival))


@pytest.mark.parametrize("rival", [DDP, PLAIN, "local-sgd:1"])
def test_a_rival_trains_what_one_machine_trains(ran: Callable[[str], list[Line]], alone: dict, rival: str) -> None:
    lines = ran(rival)
    assert [line.iteration for line in lines] == [EVERY, ITERATIONS]
    assert 0 < lines[0].seconds < lines[1].seconds
    assert 0 < lines[0].megabytes < lines[1].megabytes
    near = 0.02 if rival.startswith("local") else 0.0005  # steps that are averaged are not the step of a mean gradient
    for line in lines:
        assert line.figures["auc"] == pytest.approx(alone[line.iteration]["auc"], abs=near)


def test_models_that_are_averaged_seldom_differ_and_move_less(ran: Callable[[str], list[Line]]) -> None:
    often, seldom = (ran(f"local-sgd:{every}")[-1] for every in (1, 16))
    assert seldom.megabytes < often.megabytes
    assert seldom.figures["auc"] != pytest.approx(often.figures["auc"], abs=1e-6)


def test_a_rival_is_ended_at_its_bound(place: Place, alone: dict) -> None:
    bound = Bound(target=alone[EVERY]["auc"] - 0.001)
    assert [line.iteration for line in run_rival(replace(place, bound=bound), FAST, DDP)] == [EVERY]


@pytest.mark.parametrize(("iteration", "seconds", "auc", "ended"), [
    (110, 26.0, 0.6, False),  # 284 s for all iterations
    (100, 26.0, 0.6, True),  # 312 s
    (50, 24.0, 0.6, False),  # 576 s, and it may still become faster
    (1100, 99.0, 0.6, False),
    (1100, 101.0, 0.6, True),
    (1000, 80.0, 0.7, True),
])  # fmt: skip
def test_a_run_is_ended_where_it_cannot_be_the_first(iteration: int, seconds: float, auc: float, ended: bool) -> None:
    bound = Bound(seconds=100.0, target=0.7, iterations=1200)
    assert bound.reached(Line(iteration, seconds, 0.0, {"auc": auc})) is ended


def test_esd_passes_the_marks_over_the_same_cards(place: Place) -> None:
    options = {"data": "flights", "workers": 2, "links": "1g", "batch": 128, "cache-rows": 5000, "dense": "low-rank:4"}
    lines = run_ours(place, FAST, Plan(options, (0, 1), 1.0, 0.9, 2.0, pays=True, may_pay=True))
    assert [line.iteration for line in lines] == [EVERY, ITERATIONS]
    assert 0 < lines[0].seconds < lines[1].seconds
    assert lines[1].megabytes > 0


@pytest.mark.parametrize(("dense", "judged", "workers"), [
    ("server", "server", 2),
    ("all-reduce", "server", 2),
    ("low-rank:8", "low-rank:8", 2),
    ("every:8", "every:8", 4),
])  # fmt: skip
def test_a_model_that_depends_on_its_cluster_is_judged_on_one_like_it(dense: str, judged: str, workers: int) -> None:
    options = {"data": "flights", "workers": 4, "links": "1g,1g,10m,10m", "batch": 64, "dense": dense}
    chosen = judged_by(options, 256)
    assert (chosen.dense_sum, chosen.workers, chosen.batch) == (judged, workers, 256 // workers)
    assert (chosen.links == options["links"]) is (workers == 4)


def test_a_share_of_a_processor_is_what_a_process_gets() -> None:
    burn = "import time\nend = time.monotonic() + 2\nwhile time.monotonic() < end: pass\nprint(time.process_time())"
    with processor_shares(0.1) as (share,):
        process = subprocess.Popen([sys.executable, "-c", burn], stdout=subprocess.PIPE, text=True)
        share.hold(process.pid)
        assert share.processes == [process.pid]
        used = float(process.communicate(timeout=60)[0])
    assert 0 < used < 0.5
    assert not share.folder.exists()
