"""`esd bench e2e` on real services: every process and both directions of the links are measured."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pytest

from tests.support.processes import children_of, is_running


def test_mechanisms_are_measured_in_turns() -> None:
    command = [
        sys.executable, "-m", "esd.cli", "bench", "e2e", "--data", "synthetic:zipf?fields=4&keys=5000",
        "--mechanisms", "random/direct,joint/balanced", "--workers", "2", "--links", "40m", "--batch", "16",
        "--dim", "8", "--iterations", "160", "--warm-up", "5", "--turns", "9", "--json",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as bench:
        assert bench.stdout is not None
        result = json.loads(bench.stdout.readline())  # after the first turn
        while len(services := children_of(bench.pid)) < 2:  # one forks the others
            assert bench.poll() is None
            time.sleep(0.01)  # the second turn begins
        bench.send_signal(signal.SIGTERM)
        assert bench.wait(110) == 128 + signal.SIGTERM
    deadline = time.monotonic() + 110
    while any(map(is_running, services)):  # one that has just been forked ends once it has read that nobody is there
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert [run["mechanism"] for run in result["runs"]] == ["random/direct", "joint/balanced"]
    for run in result["runs"]:
        assert run["processor_ms"].keys() == {"worker-0", "worker-1", "dispatcher", "ps-0", "driver"}
        assert all(0 < ms < 1000 for ms in run["processor_ms"].values())
        assert run["pulled_bytes"] > 0
        assert run["pushed_bytes"] > 0
        assert (run["direct_bytes"] > 0) == run["mechanism"].endswith("/direct")
        assert run["processors_ms"] * result["cores"] == sum(run["processor_ms"].values())
        assert 1e3 / run["iterations_per_second"] > 0.9 * run["links_ms"] > 0  # links may carry a little in advance
        assert run["over_bound"] == 1e3 / run["iterations_per_second"] / max(run["links_ms"], run["processors_ms"])
        assert {"main", "esd-session", "esd-train"} <= run["thread_ms"]["worker"].keys()


def bench(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "esd.cli", "bench", "e2e", "--data", "synthetic:zipf?fields=4&keys=5000", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)


@pytest.mark.skipif(
    subprocess.run(["unshare", "-n", "tc", "qdisc"], check=False, capture_output=True).returncode != 0,
    reason="network namespaces need root and iproute2",
)
def test_the_kernel_holds_the_card_of_each_worker_to_its_speed() -> None:
    done = bench(
        "--mechanisms", "random,joint/balanced", "--workers", "2", "--links", "20m,4m", "--batch", "16", "--dim", "8",
        "--dense", "low-rank:2", "--iterations", "60", "--warm-up", "10", "--turns", "1", "--network", "kernel",
        "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for run in json.loads(done.stdout)["runs"]:
        assert run["processor_ms"].keys() == {"worker-0", "worker-1", "dispatcher", "ps-0", "driver"}
        assert 1e3 / run["iterations_per_second"] > 0.5 * run["links_ms"] > 0  # cards begin with a burst


def test_a_network_that_cannot_be_is_refused() -> None:
    assert "--network wifi: there are workers, kernel" in bench("--network", "wifi").stderr
    assert "no second network (--lan)" in bench("--network", "kernel", "--lan", "1g", "--turns", "1").stderr
