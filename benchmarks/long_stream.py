"""`esd train` from Parquet files to the model, on ids that never come twice.

    python -m benchmarks.long_stream [--millions 100] [--store directory|redis] [--kill-at 60] [--dim 8]

Writes files of 26 columns of ids that are all distinct, trains them with the command as a user does, 4 workers of 1,024
samples and everything else by default, and prints a line of JSON: whether the command ended with its model, its time,
and for all processes together and for each kind of service the largest proportional set size, sampled every 2 s. With
`--kill-at M` the parameter server is killed (`kill -9`) when M million ids have been trained, and the dispatcher
20 iterations later. The run is ended when this machine has less memory left than `--leave`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.tables import memory_of
from esd.cli.report import print_json
from esd.services.clients.dispatcher import DispatcherClient
from esd.services.domain.errors import EsdError
from esd.services.domain.state import JobState
from testbed.redis_server import redis_server

FIELDS, WORKERS, BATCH = 26, 4, 1024
_SAMPLES_OF_A_FILE = 200_000
_POLL_SECONDS = 2.0
_MORE = 20  # iterations that are trained after the loss of the parameter server until the dispatcher is killed, too
_SPREAD = 0x9E3779B97F4A7C15 >> 1 | 1  # odd: a product with it, modulo 2^62, is a permutation
_KINDS = {"esd.ps_server": "parameter server", "esd.dispatcher": "dispatcher", "esd.worker.host": "workers"}


def write_data(directory: Path, samples: int) -> None:
    """Writes Parquet files in which no id comes twice; the numbers are spread over 62 bits as hashes are."""
    rng = np.random.default_rng(0)
    for part, first in enumerate(range(0, samples, _SAMPLES_OF_A_FILE)):
        count = min(_SAMPLES_OF_A_FILE, samples - first)
        numbers = np.arange(first * FIELDS, (first + count) * FIELDS, dtype=np.uint64)
        ids = (numbers * np.uint64(_SPREAD) % np.uint64(2**62)).astype(np.int64).reshape(count, FIELDS)
        columns = {"label": rng.integers(0, 2, count), **{f"c{at:02}": ids[:, at] for at in range(FIELDS)}}
        pq.write_table(pa.table(columns), directory / f"part-{part:04}.parquet", row_group_size=50_000)
    names = ", ".join(f'"c{at:02}"' for at in range(FIELDS))
    (directory / "fresh.toml").write_text(f'label = "label"\nids = [{names}]\n')


@dataclass
class Watched:
    """A command and its processes.

    Attributes:
        peak: most memory of each kind of process and of all together, bytes.
        last: the latest sample of it.
        state: of the job, as last seen.
        killed: the services that were killed, with the number of trained ids.
        lowest_available: the least memory that the machine had available, bytes.
    """

    command: int
    redis: int
    kill_at: float
    peak: dict[str, int] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)
    state: JobState | None = None
    killed: dict[str, int] = field(default_factory=dict)
    lowest_available: int = 2**63
    _killed_in: int = 0  # the iteration in which the last process was killed

    def look(self) -> None:
        """Samples the memory, asks for the state, and kills the services that are due."""
        processes = dict(processes_below(self.command))
        sample = dict.fromkeys([*_KINDS.values(), "command"], 0)
        for process, kind in processes.items():
            sample[kind] += memory_of(process)
        if self.redis:
            sample["redis"] = memory_of(self.redis)
        sample["all"] = sum(sample.values())
        self.last = sample
        self.peak = {kind: max(size, self.peak.get(kind, 0)) for kind, size in sample.items()}
        self.lowest_available = min(self.lowest_available, available_memory())
        by_kind = {kind: process for process, kind in processes.items()}
        if "dispatcher" in by_kind:
            with contextlib.suppress(EsdError, OSError):  # it is away, or has just ended
                self.state = state_of(by_kind["dispatcher"]) or self.state
        if self.kill_at and self.state is not None:
            self._kill(by_kind, self.state)

    def _kill(self, by_kind: dict[str, int], state: JobState) -> None:
        trained = state.iterations_confirmed * WORKERS * BATCH * FIELDS
        if "parameter server" not in self.killed:
            due, victim = trained >= self.kill_at * 1e6, "parameter server"
        else:  # in Redis the rows outlive their server, so that no epoch begins
            again = state.iterations_confirmed > self._killed_in + _MORE
            due, victim = len(self.killed) == 1 and again, "dispatcher"
        if due and victim in by_kind:
            os.kill(by_kind[victim], signal.SIGKILL)
            self.killed[victim], self._killed_in = trained, state.iterations_confirmed

    def __str__(self) -> str:
        """Returns the latest sample in words."""
        trained = 0 if self.state is None else self.state.iterations_confirmed
        sizes = ", ".join(f"{kind} {size / 2**20:,.0f}" for kind, size in self.last.items())
        return f"{trained:,} iterations; MiB: {sizes}; {available_memory() / 2**20:,.0f} available"


def processes_below(parent: int) -> Iterator[tuple[int, str]]:
    """Yields a process and all its descendants, each with its kind."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(path.parent.name))
    waiting = [parent]
    while waiting:
        process = waiting.pop()
        waiting += children.get(process, [])
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{process}/cmdline").read_bytes().decode(errors="replace").split("\0")
            yield process, next((kind for module, kind in _KINDS.items() if module in words), "command")


def state_of(dispatcher: int) -> JobState | None:
    """Returns the state of the job of a dispatcher's process; None before it has one."""
    variables = Path(f"/proc/{dispatcher}/environ").read_bytes().split(b"\0")
    listens = next(each.partition(b"=")[2] for each in variables if each.startswith(b"ESD_DISPATCHER_LISTEN="))
    with DispatcherClient(listens.decode(), timeout=10, patience=0) as client:
        return client.describe()


def available_memory() -> int:
    """Returns the bytes of memory that programs of this machine may still have."""
    line = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable:"))
    return 1024 * int(line.split()[1])


def measure(arguments: argparse.Namespace, place: Path) -> dict[str, Any]:
    """Trains once; returns the figures of the module's docstring."""
    data, kept, out = place / "fresh", place / "kept", place / "out"
    for directory in (data, kept):
        directory.mkdir()
    samples = round(arguments.millions * 1e6 / FIELDS)
    write_data(data, samples)
    with contextlib.ExitStack() as stack:
        redis = stack.enter_context(redis_server(kept)) if arguments.store == "redis" else None
        store = ["--checkpoint-dir", str(kept)] if redis is None else ["--store", redis.url]
        command = [
            *(sys.executable, "-m", "esd.cli", "train", "--data", str(data / "*.parquet")),
            *("--schema", str(data / "fresh.toml"), "--workers", str(WORKERS), "--batch", str(BATCH)),
            *("--dim", str(arguments.dim), *store, "--out", str(out), "--no-graphs", "--json"),
        ]
        begun = time.monotonic()
        log = stack.enter_context((place / "log").open("w+"))
        process = subprocess.Popen(command, stdout=log, stderr=sys.stderr, start_new_session=True)  # noqa: S603
        redis_process = 0 if redis is None or redis.process is None else redis.process.pid
        watched, stopped = Watched(process.pid, redis_process, arguments.kill_at), False
        try:
            while process.poll() is None:
                watched.look()
                print(f"{time.monotonic() - begun:,.0f} s: {watched}", file=sys.stderr, flush=True)
                if available_memory() < arguments.leave * 1e9:
                    stopped = True
                    os.killpg(process.pid, signal.SIGKILL)  # the services notice, and end
                time.sleep(_POLL_SECONDS)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
        seconds = time.monotonic() - begun
        log.seek(0)
        result = json.loads(log.read().splitlines()[-1]) if process.returncode == 0 else {}
        disk = sum(path.stat().st_size for path in kept.rglob("*") if path.is_file())
    model = [path.stat().st_size for path in (out / "model").rglob("*") if path.is_file()]
    return {
        "store": arguments.store,
        "ids": samples * FIELDS,
        "dim": arguments.dim,
        "exit_code": process.returncode,
        "stopped_for_memory": stopped,
        "model_bytes": sum(model),
        "seconds": seconds,
        "iterations": result.get("iterations"),
        "recoveries": result.get("recoveries"),
        "killed": watched.killed,
        "peak_bytes": watched.peak,
        "disk_bytes": disk,
        "least_available_bytes": watched.lowest_available,
    }


def main() -> None:
    """Prints one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--millions", type=float, default=100, help="of ids")
    parser.add_argument("--store", choices=["directory", "redis"], default="directory")
    parser.add_argument("--kill-at", type=float, default=0, help="millions of trained ids; 0: no process is killed")
    parser.add_argument("--dim", type=int, default=8)
    parser.add_argument("--leave", type=float, default=1.0, help="GB of memory that this machine must keep available")
    arguments = parser.parse_args()
    print_json({"cpus": os.cpu_count(), "load": os.getloadavg()[0]})
    with tempfile.TemporaryDirectory(prefix="esd-long-stream-") as place:
        print_json(measure(arguments, Path(place)))


if __name__ == "__main__":
    main()
