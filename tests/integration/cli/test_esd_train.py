"""`esd train` as its users and other programs call it, with all services as processes."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from esd.data import open_data
from esd.services.domain.batches import SampleBatch
from testbed.auc import exact_auc
from tests.support.command import esd, esd_here
from tests.support.models import assert_same_model, model_arrays
from tests.support.processes import children_of, is_running

POLL_SECONDS = 0.05  # between looks at other processes, which need the processor more


def popularity_scores(samples: SampleBatch) -> np.ndarray:
    """Predicts from the past rate of late flights of the same tail number, smoothed: no model, no training."""
    tail = samples.by_field[:, 2]
    late: dict[int, list[float]] = {}
    scores = np.empty(len(tail))
    for i, (number, label) in enumerate(zip(tail.tolist(), samples.labels[:, 0].tolist(), strict=True)):
        seen = late.setdefault(number, [4.6, 20.0])
        scores[i] = seen[0] / seen[1]
        seen[0] += label
        seen[1] += 1
    return scores


def test_what_a_program_reads(tmp_path: Path) -> None:
    """The contract of --json, --out and --decision-log, on enough flights to beat a baseline that needs no model."""
    log = str(tmp_path / "decisions.jsonl")
    finished = esd(
        "train", "--data", "flights", "--workers", "2", "--batch", "128", "--dim", "16", "--iterations", "200",
        "--optimizer", "adagrad", "--lr", "0.02", "--seed", "1", "--json", "--no-graphs", "--out", str(tmp_path),
        "--workloads", "balanced", "--measured-links", "--horizon", "2", "--budget", "auto", "--decision-log", log,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr
    assert re.search(r"^live: http://127\.0\.0\.1:\d+/$", finished.stderr, re.MULTILINE)
    result = json.loads(finished.stdout.splitlines()[-1])
    assert result["iterations"] == 200
    assert result["samples"] == 200 * 256
    assert result["iterations_per_second"] == pytest.approx(200 / result["seconds"])
    for kind in ("miss_pull", "update_push", "evict_push"):
        assert len(result["operations"][kind]) == 2
    assert all(count > 0 for count in result["bytes"]["pulled"] + result["bytes"]["pushed"])
    carried = {f"{kind}_{end}": counts for kind, ends in result["link_bytes"].items() for end, counts in ends.items()}
    for slot in range(2):
        moved = result["bytes"]["pulled"][slot] + result["bytes"]["pushed"][slot]
        of_rows = (carried[name][slot] for name in ("rows_up", "rows_down", "gradients_up"))
        assert sum(of_rows) == pytest.approx(moved, rel=1e-3)  # a repeated message is on the link twice
        assert carried["dense_up"][slot] == carried["dense_down"][slot] > 0
    # A plan has each sample's ids, and a report a score of two bytes.
    assert sum(carried["plans_down"]) > 200 * 256 * 26 > sum(carried["plans_up"]) > 200 * 256 * 2
    assert 0 < result["makespan_seconds"] < result["cost_seconds"]
    assert 0 < result["hit_ratio"] < 1
    assert 0 < result["decision_ms"]["median"] <= result["decision_ms"]["p99"]
    assert result["phase_seconds"]["compute"] > 0

    samples = SampleBatch.concatenate(list(open_data("flights", 4096, seed=0)))[: 200 * 256]
    rate = samples.labels.mean()
    constant_loss = -(rate * np.log(rate) + (1 - rate) * np.log(1 - rate))
    assert result["loss"] < constant_loss - 0.01
    assert result["auc"] > exact_auc(popularity_scores(samples), samples.labels[:, 0]) + 0.05

    model = model_arrays(tmp_path / "model")
    np.testing.assert_array_equal(model["ids"], np.unique(samples.by_field))
    assert model["rows"].shape == (len(model["ids"]), 16)
    assert model["rows"].dtype == np.float32
    assert model["versions"].dtype == np.int64
    assert model["versions"].min() >= 1
    assert any(name.startswith("dense/") for name in model)

    replay = esd("simulate", "--data", "flights", "--seed", "1", "--replay", log, "--json")
    assert replay.returncode == 0, replay.stderr
    replayed = json.loads(replay.stdout.splitlines()[-1])
    for figure in ("operations", "cost_seconds", "hit_ratio"):
        assert replayed[figure] == result[figure]


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_a_command_that_is_ended_leaves_no_service_behind(
    tmp_path: Path, number: signal.Signals, code: int, cold_python: None
) -> None:
    command = [
        sys.executable,
        "-m",
        "esd.cli",
        "train",
        "--workers",
        "1",
        "--links",
        "1m",
        "--no-graphs",
        "--out",
        str(tmp_path),
    ]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as running:
        log = tmp_path / "logs" / "worker-0.log"
        while not (log.exists() and "registered" in log.read_text()):
            assert running.poll() is None
            time.sleep(POLL_SECONDS)
        services = children_of(running.pid)
        assert len(services) == 3  # of which one is the host, whose child is the worker
        workers = [worker for service in services for worker in children_of(service)]
        assert len(workers) == 1
        running.send_signal(number)
        assert running.wait(110) == code
    deadline = time.monotonic() + 110
    while any(is_running(service) for service in [*services, *workers]):
        assert time.monotonic() < deadline
        time.sleep(POLL_SECONDS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "xyz"], "'xyz' is unknown, choose one of wdl"),
        (["--dim", "1"], "dimension is 1, wdl needs at least 2"),
    ],
    ids=["unknown", "shape"],
)
def test_a_model_that_cannot_train_is_refused_before_a_service_starts(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    refused = esd_here("train", "--workers", "1", "--iterations", "3", "--dim", "4", "--out", str(tmp_path), *arguments)
    assert refused.returncode == 2
    assert message in refused.stderr
    assert [log.name for log in (tmp_path / "logs").iterdir()] == ["worker-host.log"]


@pytest.mark.parametrize(
    ("arguments", "messages"),
    [
        (["--store", "redis://127.0.0.1:1/0"], ["ps-0", "127.0.0.1:1"]),
        (["--mechanism", "nearest"], ["'nearest' is unknown"]),
        (["--cache-rows", "10"], ["worker 0 caches 10 rows", "--cache-rows"]),
        (["--data", "criteo:/nowhere/train.txt"], ["/nowhere/train.txt"]),
    ],
    ids=lambda value: " ".join(value) if value[0].startswith("--") else "",
)
def test_a_mistake_ends_the_run_and_names_itself(arguments: list[str], messages: list[str]) -> None:
    refused = esd_here("train", "--workers", "1", "--iterations", "3", "--dim", "4", *arguments)
    assert refused.returncode in (1, 2)
    assert refused.stdout == ""
    for message in messages:
        assert message in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_solver_without_its_device_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # hides the devices of a machine that has some
    out = tmp_path / "out"
    refused = esd_here("train", "--mechanism", "esd", "--solver", "dual-cuda", "--iterations", "3", "--out", str(out))
    assert refused.returncode in (1, 2)
    assert "solver dual-cuda needs a CUDA device" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not out.exists(), "the services' logs are made before the services start"


HELD_OUT = ["--evaluate", "flights", "--evaluate-every", "2"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*HELD_OUT, "--early-stop", "precision:2"], "'precision:2' is not METRIC:PATIENCE"),
        ([*HELD_OUT, "--early-stop", "gauc:2"], "gauc needs samples with groups"),
        ([*HELD_OUT, "--early-stop", ""], "'' is not METRIC:PATIENCE"),
        (["--store", "postgres://127.0.0.1"], "store 'postgres' is neither memory nor"),
        (["--store", "redis://127.0.0.1:1/rows"], "the store URL must be"),
        (["--store", "redis://127.0.0.1:1", "--checkpoint-dir", "kept"], "is for the memory store"),
        (["--checkpoint-dir", "http://bucket/kept"], "is neither a path nor the URL of a bucket"),
        (["--store", "valkey", "--checkpoint-dir", "s3://bucket/kept"], "s3://bucket/kept is for --store memory"),
        (["--shards", "65"], "Invalid value for '--shards'"),
        (["--decision-log", "/nowhere/decisions.jsonl"], "there is no directory /nowhere"),
        (["--decision-log", "/"], "'--decision-log'"),
        (["--checkpoint-dir", __file__], "'--checkpoint-dir'"),
        (["--table", ""], "table name '' must match"),
        (["--continue-from", ""], "table name '' must match"),
        (["--continue-stream"], "give --continue-from TABLE"),
        (["--submitters", "2"], "--iterations would rule over the whole stream"),
        (["--submitters", "65"], "Invalid value for '--submitters'"),
        (["--dense-lr-schedule", "steep"], "--dense-lr-schedule 'steep' is unknown"),
    ],
    ids=lambda value: " ".join(value[-2:]) if isinstance(value, list) else "",
)
def test_a_mistake_is_named_before_anything_starts(tmp_path: Path, arguments: list[str], message: str) -> None:
    out = tmp_path / "out"
    refused = esd_here("train", "--workers", "1", "--iterations", "3", "--out", str(out), *arguments)
    assert refused.returncode == 2
    assert message in refused.stderr
    assert not out.exists(), "the services' logs are made before the services start"


def test_an_output_that_is_a_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "model"
    file.touch()
    assert "'--out'" in esd_here("train", "--out", str(file)).stderr
    below = esd_here("train", "--workers", "1", "--iterations", "3", "--out", str(file / "below"))
    assert below.returncode == 2
    assert below.stderr == f"esd: {file / 'below' / 'logs'}: Not a directory\n"


def test_a_malformed_record_ends_the_run_and_names_its_place(tmp_path: Path) -> None:
    good = "\t".join(["1", *(["3"] * 13), *(["0a1b2c3d"] * 26)])
    path = tmp_path / "train.txt"
    path.write_text(f"{good}\n" * 40 + good.replace("3", "three", 1) + "\n" + f"{good}\n" * 5)
    refused = esd_here("train", "--data", f"criteo:{path}", "--workers", "1", "--batch", "8", "--cache-rows", "99")
    assert refused.returncode == 2
    assert f"{path}:41: column 2" in refused.stderr
    assert "--skip-bad" in refused.stderr
    taken = esd_here(
        "train", "--data", f"criteo:{path}", "--workers", "1", "--batch", "8", "--cache-rows", "99", "--skip-bad", "1",
        "--json",
    )  # fmt: skip
    assert taken.returncode == 0, taken.stderr
    assert "skipped 1 malformed record" in taken.stderr
    assert json.loads(taken.stdout.splitlines()[-1])["samples"] == 45


def test_several_seeds_make_the_models_of_single_runs(tmp_path: Path) -> None:
    run = (
        "train", "--data", "synthetic:zipf?fields=4&keys=500", "--workers", "2", "--batch", "16", "--dim", "4",
        "--cache-rows", "200", "--iterations", "6", "--json", "--no-graphs",
    )  # fmt: skip
    both = esd_here(*run, "--seeds", "2", "--seed", "3", "--out", str(tmp_path))
    assert both.returncode == 0, both.stderr
    result = json.loads(both.stdout.splitlines()[-1])
    assert [each["seed"] for each in result["runs"]] == [3, 4]
    losses = []
    for seed in (3, 4):
        named = ("--table", f"embeddings-seed-{seed}")
        alone = esd_here(*run, "--seed", str(seed), *named, "--out", str(tmp_path / f"alone-{seed}"))
        losses.append(json.loads(alone.stdout.splitlines()[-1])["loss"])
        assert_same_model(tmp_path / f"seed-{seed}", tmp_path / f"alone-{seed}")
    assert losses[0] != losses[1]
    assert [each["loss"] for each in result["runs"]] == losses
    assert result["mean"]["loss"] == pytest.approx(np.mean(losses))
