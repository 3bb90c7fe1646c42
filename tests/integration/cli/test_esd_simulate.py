"""`esd simulate` as other programs call it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from esd.cli.main import app
from esd.services.domain.errors import EsdError
from tests.support.command import esd


def result(*arguments: str) -> dict:
    finished = CliRunner().invoke(app, ["simulate", "--json", *arguments], catch_exceptions=False)
    assert finished.exit_code == 0, finished.output
    return json.loads(finished.stdout.splitlines()[-1])


@pytest.fixture
def trace(tmp_path: Path) -> list[str]:
    """Two workers, four iterations of two samples: 7 moves from worker 0 to worker 1, is split, and comes back."""
    ids = np.array([[7, 1], [8, 2], [8, 1], [7, 2], [7, 1], [7, 2], [7, 1], [8, 2]], np.uint64)
    assignment = np.array([[0, 1], [0, 1], [0, 1], [0, 1]], np.int32)
    np.save(tmp_path / "trace.npy", ids)
    np.save(tmp_path / "assignment.npy", assignment)
    return ["--trace", str(tmp_path / "trace.npy"), "--assignments", str(tmp_path / "assignment.npy"), "--workers", "2"]


def test_counts_of_a_hand_worked_trace(trace: list[str]) -> None:
    """Iteration 0: both workers pull two rows. 1: 7 and 8 change places, so each owner pushes and the other pulls.
    2: worker 0 needs 7 beside its owner, worker 1: a push, a pull, and 7 is split. 3: both push their part of 7 and
    worker 0 pulls it; worker 1 needs 8, owned by worker 0: a push and a pull."""
    counted = result(*trace, "--cache-rows", "4", "--dim", "4", "--links", "1m,2m", "--optimizer", "sgd")
    assert counted["operations"]["miss_pull"] == [2 + 1 + 1 + 1, 2 + 1 + 0 + 1]
    assert counted["operations"]["update_push"] == [0 + 1 + 0 + 2, 0 + 1 + 1 + 1]
    assert counted["operations"]["evict_push"] == [0, 0]
    assert counted["operations"]["flush_push"] == [2, 2]
    slow, fast = 32 / (1e6 / 8), 32 / (2e6 / 8)  # seconds a row: 4 float32, id and version over 1 and 2 Mbit/s
    slow_part, fast_part = 1.5 * slow, 1.5 * fast  # seconds a partial gradient, with its contributors and step
    assert counted["cost_seconds"] == pytest.approx(slow * (5 + 2) + slow_part + fast * (4 + 2) + fast_part)
    assert counted["makespan_seconds"] == pytest.approx(slow * (2 + 2 + 1 + 2) + slow_part)
    assert counted["hit_ratio"] == pytest.approx(1 - 9 / 16)
    assert counted["iterations"] == 4
    assert counted["samples"] == 8


def test_rows_of_unequal_size_are_charged_by_their_bytes(trace: list[str]) -> None:
    """The trace above; 7 and 8, in the first field, have 8 values, 1 and 2 have 4."""
    counted = result(*trace, "--cache-rows", "9", "--dim", "4", "--dims", "0=8", "--links", "1m", "--optimizer", "sgd")
    assert counted["operations"]["miss_pull"] == [5, 4]
    # Of rows that were never trained, 7 and 1 of one worker and 8 and 2 of the other, only the requests cross.
    assert counted["bytes"]["pulled"] == [32 + 48 + 48 + 48, 32 + 48 + 0 + 48]
    assert counted["bytes"]["pushed"] == [0 + 48 + 0 + 64 + 48, 0 + 48 + 48 + 64]
    assert counted["cost_seconds"] == pytest.approx((224 + 160 + 176 + 160) / (1e6 / 8))


@pytest.mark.parametrize(
    ("options", "way", "round_trips"),
    [
        ([], "server", 1),
        (["--dense", "all-reduce"], "all-reduce", 4),
        (["--lan", "1g"], "all-reduce", 4),
    ],
)
def test_links_decide_how_gradients_are_summed_unless_it_is_said(
    trace: list[str], options: list[str], way: str, round_trips: int
) -> None:
    counted = result(*trace, "--cache-rows", "4", "--dim", "4", "--links", "1m,2m", *options)
    assert (counted["dense_sum"], counted["round_trips"]) == (way, round_trips)


@pytest.mark.parametrize("sync", ["full", "write-through"])
def test_full_synchronisation_pushes_all_that_is_trained(trace: list[str], sync: str) -> None:
    """All 2 + 2 rows of every iteration are pushed, the last ones in the flush; pulls are the pulls of on-demand."""
    small = ("--cache-rows", "4", "--dim", "4", "--links", "1m,2m", "--optimizer", "sgd")
    counted = result(*trace, *small, "--sync", sync)
    assert counted["operations"]["update_push"] == [6, 6]
    assert counted["operations"]["flush_push"] == [2, 2]
    assert counted["operations"]["miss_pull"] == [5, 4]


def test_alternatives_run_on_the_same_assignments(trace: list[str]) -> None:
    """HET with bound 0 pushes all 2 + 2 rows of every iteration; its pulls are the pulls of on-demand."""
    small = ("--cache-rows", "4", "--dim", "4", "--links", "1m,2m", "--optimizer", "sgd")
    counted = result(*trace, *small, "--alternative", "het:0")
    assert counted["operations"]["update_push"] == [8, 8]
    assert counted["operations"]["miss_pull"] == [5, 4]
    assert counted["figures"]["stale_read_share"] == 0
    assert result(*trace, *small, "--alternative", "fae")["figures"]["hot_rows"] == 4
    assert result(*trace, *small, "--alternative", "p2f:10", "--compute-us", "50")["figures"]["busy_seconds"] > 0


@pytest.mark.parametrize("sync", ["on-demand", "write-through", "proactive", "bounded:3,2"])
def test_more_than_sixty_four_workers_move_what_fewer_do(tmp_path: Path, sync: str) -> None:
    """The engine for more workers counts the same operations as the engine for fewer, with any of its workers."""
    rng = np.random.default_rng(3)
    ids, assignment = rng.zipf(1.3, (24 * 130, 3)) % 500, rng.integers(0, 64, (24, 130))
    np.save(tmp_path / "trace.npy", ids.astype(np.uint64))
    kinds, counted = ("miss_pull", "update_push", "evict_push", "flush_push"), {}
    for workers, first in ((64, 0), (128, 0), (128, 64), (97, 33)):
        np.save(tmp_path / "assignment.npy", (assignment + first).astype(np.int32))
        operations = result(
            *("--trace", str(tmp_path / "trace.npy"), "--assignments", str(tmp_path / "assignment.npy")),
            *("--workers", str(workers), "--cache-rows", "40", "--links", "5g", "--sync", sync),
        )["operations"]
        assert not any(count for kind in kinds for count in operations[kind][:first] + operations[kind][first + 64 :])
        counted[workers, first] = [operations[kind][first : first + 64] for kind in kinds]
    assert all(counts == counted[64, 0] for counts in counted.values())
    assert sum(map(sum, counted[64, 0])) > 10_000


def test_balanced_workloads_follow_the_slow_worker() -> None:
    counted = result(
        *("--data", "flights", "--iterations", "60", "--workers", "2", "--links", "5g", "--batch", "32"),
        *("--workloads", "balanced", "--workload-limits", "1,63", "--compute-us", "100,300", "--cache-rows", "9000"),
    )
    assert counted["workloads"][0] > 1.5 * counted["workloads"][1]
    assert sum(counted["workloads"]) == pytest.approx(64)


def test_a_cache_too_small_names_what_it_needs(trace: list[str]) -> None:
    refused = esd("simulate", *trace, "--cache-rows", "1")
    assert refused.returncode == 1
    assert "worker 0 caches 1 rows, iteration 0 needs 2" in refused.stderr
    assert "--cache-rows" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_an_empty_trace_and_too_few_assignments_are_refused(trace: list[str], tmp_path: Path) -> None:
    np.save(tmp_path / "empty.npy", np.empty((0, 4), np.uint64))
    refused = esd("simulate", "--trace", str(tmp_path / "empty.npy"), "--cache-rows", "9")
    assert refused.returncode == 2
    assert "empty.npy is empty: [0, 4]" in refused.stderr
    np.savez(tmp_path / "several.npz", np.empty((3, 4), np.uint64))
    (tmp_path / "nothing.npy").touch()
    for name in ("several.npz", "nothing.npy"):
        refused = esd("simulate", "--trace", str(tmp_path / name), "--cache-rows", "9")
        assert (refused.returncode, f"{name} cannot be read" in refused.stderr) == (2, True), refused.stderr
    refused = esd("simulate", *trace, "--cache-rows", "4", "--iterations", "99")
    assert refused.returncode == 2
    assert "--iterations 99 are more than the" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--mechanism", "nearest"], "'nearest' is unknown"),
        (["--eviction-term"], "--eviction-term is for esd and esd-priced, joint has no such option"),
        (["--budget", "0"], "--budget 0 leaves no time"),
        (["--budget", "soon"], "--budget 'soon' is neither a number nor auto"),
        (["--alpha", "auto"], "--alpha auto is for esd and esd-priced, joint has no such option"),
        (["--alpha", "0.5"], "--alpha 0.5 is for esd and esd-priced, joint has no such option"),
        (["--criterion", "row-mean"], "--criterion row-mean is for esd and esd-priced, joint has no such option"),
        (["--solver", "paths"], "--solver paths is for esd and esd-priced, joint has no such option"),
        (["--mechanism", "esd", "--alpha", "2"], "alpha is 2.0, it must be in 0..1"),
        (["--alternative", "sometimes"], "known are het:S, fae"),
        (["--alternative", "p2f:9", "--workloads", "balanced"], "does not go with --alternative"),
        (["--alternative", "fae", "--sync", "full"], "takes the place of --sync full"),
        (["--alternative", "fae", "--direct"], "leave out --direct"),
        (["--direct", "--sync", "proactive"], "--direct is for --sync on-demand"),
        (["--sync", "replicated"], "is not of the form replicated:ROWS"),
        (["--horizon", "2", "--mechanism", "esd"], "--horizon 2 is for joint, esd has no such option"),
        (["--hash-field", "0"], "--hash-field 0 is for hash, joint has no such option"),
        (["--sync", "replicated:0"], "replicated rows are 0, there must be at least 1"),
        (["--sync", "replicated:9999999"], "9999999 rows are to be replicated"),
        (["--hot-batches", "9"], "--hot-batches 9 needs rows that all workers have: --sync replicated:R"),
        (["--hot-batches", "9", "--dims", "8"], "--hot-batches goes by the tables of --data: leave out --dims"),
        (["--replay", "/nowhere/log"], "/nowhere/log cannot be read"),
        (["--replay", "/nowhere/log", "--dims", "8"], "--dims would change them"),
        (["--dims", "gate=16"], "names field 'gate'; the fields are"),
        (["--dims", "origin=16", "--alternative", "fae"], "--dims does not go with --alternative"),
        (["--alternative", "het:1", "--max-rows", "9", "--at-max-rows", "forget"], "forget does not go with"),
        (["--alternative", "het:1", "--row-ttl", "9"], "--row-ttl does not go with --alternative"),
        (["--alternative", "het:1", "--admit-after", "2"], "--admit-after does not go with --alternative"),
        (["--at-max-rows", "forget"], "without a limit: give max_rows"),
        (["--workload-limits", "1,2"], "needs --workloads balanced"),
        (["--workloads", "balanced", "--workload-limits", "many"], "two whole numbers"),
        (["--compute-us", "1,2"], "one number or 4"),
        (["--policy", "fifo"], "'fifo'"),
        (["--links", "5g,5g,5g"], "3 links for 4 workers"),
        (["--links", "fast"], "'fast'"),
        (["--workloads", "10,20"], "names 2 workers"),
        (["--workloads", "1,2,3,4", "--batch", "9"], "leave out one of the two"),
        (["--cache-rows", "10", "--cache-ratio", "0.1"], "exclude each other"),
        (["--data", "synthetic:zipf", "--iterations", "3"], "--cache-rows"),
        (["--data", "synthetic:zipf", "--cache-rows", "9000"], "--iterations"),
        (["--data", "criteo:/nowhere/train.txt"], "/nowhere/train.txt"),
        (["--data", "tea"], "'tea' is unknown"),
        (["--trace", "/nowhere/trace.npy"], "/nowhere/trace.npy"),
    ],
)
def test_a_mistake_is_refused_and_named(arguments: list[str], message: str) -> None:
    refused = CliRunner().invoke(app, ["simulate", *arguments]).exception
    assert isinstance(refused, EsdError | OSError)
    assert message in str(refused)
