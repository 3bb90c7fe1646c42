"""Memory, disk, checkpoints and recovery against the number of rows.

    python -m benchmarks.tables [--millions 5,20,60] [--store directory --store redis] [--dim 16] [--every 50]

Trains ids that never come twice until the table has its size, with a checkpoint every 50 iterations, and prints a line
of JSON per size and store:

- memory of each service above its start, in bytes per row, and of all of them in bytes: proportional set sizes, sampled
  every second; `peak` is the largest sample, `end` the last one,
- disk that checkpoints and rows take,
- an iteration in the median, and how much longer the iterations at the last two checkpoints took, and at every one,
- decision: the median time of a decision over the last 1,024 iterations,
- recovery: from a `kill -9` of the parameter server to the first iteration that all workers train afterwards; null with
  another store than a directory, or if the job failed, with the reason.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.recovery import VICTIMS, Fault, NewRows, Recovered, train
from esd.cli.report import print_json
from esd.run.cluster import LocalServices
from esd.run.options import RunOptions
from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.features import numbered_ids
from esd.services.domain.state import JobState
from testbed.redis_server import redis_server

FIELDS, BATCH = 26, 2048
AFTER = 300  # iterations of ids that were seen, so that some are left when the last checkpoint is written
_SAMPLED_SECONDS = 1.0
_ROW_SERVICES = ("parameter server", "redis")


@dataclass(frozen=True)
class Place:
    """A store, and where it keeps its data.

    Attributes:
        options: of LocalServices.
        logs: directory of the services' logs.
        data: directory of checkpoints or rows.
        redis: process of Redis; 0: none.
    """

    options: dict[str, Any]
    logs: Path
    data: Path
    redis: int = 0


@contextlib.contextmanager
def opened(store: str) -> Iterator[Place]:
    """Yields an empty store, `memory`, `directory` or `redis`."""
    with tempfile.TemporaryDirectory(prefix="esd-tables-") as directory:
        logs, data = Path(directory) / "logs", Path(directory) / "data"
        logs.mkdir()
        data.mkdir()
        if store == "redis":
            with redis_server(data) as server:
                assert server.process is not None  # noqa: S101 - it has just been started
                yield Place({"store": server.url}, logs, data, server.process.pid)
        elif store == "directory":
            yield Place({"store": "memory", "checkpoint_dir": data}, logs, data)
        else:
            yield Place({"store": "memory"}, logs, data)


def memory_of(process: int) -> int:
    """Returns the proportional set size of a process in bytes; 0 if it has ended."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return 1024 * int(line.split()[1])
    return 0


@dataclass
class Course:
    """The figures of a run while its table grows.

    Attributes:
        samples: memory of each service in bytes, by sample.
        confirmed: each number of confirmed iterations, and when it was first seen.
        decision_seconds: median time of a decision.
    """

    place: Place
    samples: list[dict[str, int]] = field(default_factory=list)
    confirmed: list[tuple[int, float]] = field(default_factory=list)
    decision_seconds: float = 0.0
    _sampled: float = 0.0

    def see(self, cluster: LocalServices, state: JobState) -> None:
        """Sees every polled state."""
        now = time.monotonic()
        self.decision_seconds = state.decision_median_seconds
        if not self.confirmed or state.iterations_confirmed > self.confirmed[-1][0]:
            self.confirmed.append((state.iterations_confirmed, now))
        if now - self._sampled >= _SAMPLED_SECONDS:
            self._sampled = now
            processes = {
                "parameter server": [each.process.pid for each in cluster.parameter_servers],
                "dispatcher": [cluster.dispatcher.process.pid],
                "workers": [each.process.pid for each in cluster.workers],
                "redis": [self.place.redis] if self.place.redis else [],
            }
            self.samples.append({name: sum(map(memory_of, pids)) for name, pids in processes.items() if pids})

    def seconds_of_iterations(self) -> tuple[dict[int, float], float]:
        """Returns the longest seconds between two confirmations by iteration, and the median of an iteration."""
        pairs = list(zip(self.confirmed, self.confirmed[1:], strict=False))
        spans = {later[0]: later[1] - earlier[1] for earlier, later in pairs}
        each = [(later[1] - earlier[1]) / (later[0] - earlier[0]) for earlier, later in pairs]
        return spans, statistics.median(each)

    def stalls(self, every: int) -> dict[int, float]:
        """Returns how much longer than a median iteration the longest iteration at each checkpoint took, in seconds."""
        spans, usual = self.seconds_of_iterations()
        cuts = range(every, max(spans), every)
        near = {cut: [span for at, span in spans.items() if cut - 2 <= at < cut + every // 2] for cut in cuts}
        return {cut: max(found) - usual for cut, found in near.items() if found}


def measure(store: str, millions: float, arguments: argparse.Namespace) -> dict[str, Any]:
    """Grows a table to its size and kills its parameter server; returns the figures of the module's docstring."""
    grows_for = max(2, round(millions * 1e6 / (BATCH * FIELDS) / arguments.every)) * arguments.every
    options = RunOptions(
        workers=2,
        links="10g",
        batch=BATCH // 2,
        dim=arguments.dim,
        hidden="16",
        cache_rows=arguments.cache_rows,
        checkpoint_every=arguments.every,
    )
    rows = grows_for * BATCH * FIELDS
    features = numbered_ids(FIELDS)
    row_bytes = options.job(features=features, dense_features=(), parameter_servers=("any",)).table.row_bytes
    fault = Fault(VICTIMS["ps_server"], grows_for + 1)
    disk, failure = 0, ""
    with opened(store) as place:
        course = Course(place)

        def watch(cluster: LocalServices, state: JobState) -> None:
            nonlocal disk
            if state.checkpoint < grows_for:
                course.see(cluster, state)
                return
            disk = disk or sum(path.stat().st_size for path in place.data.rglob("*") if path.is_file())
            if store != "directory":  # in Redis nothing is lost, in memory everything
                raise Recovered(None, state)
            fault(cluster, state)

        stream = NewRows(grows_for + AFTER, grows_for)
        try:
            asyncio.run(train(stream, options, place.options, (features, ()), place.logs, watch))
            raise AssertionError("the run was over before it had recovered")
        except Recovered as recovered:
            seconds = recovered.args[0]
        except FailedPrecondition as error:
            if not disk:
                raise
            seconds, failure = None, str(error)  # what was measured before the fault still counts
    start, end = course.samples[0], course.samples[-1]
    stalls = course.stalls(arguments.every)
    peak = {name: max(sample.get(name, 0) for sample in course.samples) for name in start}
    return {
        "store": store,
        "dim": arguments.dim,
        "rows": rows,
        "row_bytes": row_bytes,
        "end_bytes_per_row": {name: (end[name] - start[name]) / rows for name in start},
        "peak_bytes_per_row": {name: (peak[name] - start[name]) / rows for name in start},
        "peak_bytes": peak,
        "times_of_rows": sum(peak[name] - start[name] for name in _ROW_SERVICES if name in start) / (rows * row_bytes),
        "disk_times_of_rows": disk / (rows * row_bytes),
        "iteration_seconds": course.seconds_of_iterations()[1],
        "stall_seconds": statistics.mean(list(stalls.values())[-2:]),
        "stall_seconds_at_rows": {cut * BATCH * FIELDS: stall for cut, stall in stalls.items()},
        "decision_seconds": course.decision_seconds,
        "recovery_seconds": seconds,
        "failure": failure,
    }


def main() -> None:
    """Prints one JSON object per size and store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--millions", default="5,20", help="of rows; of whole checkpoints, at least two")
    parser.add_argument("--store", action="append", choices=["memory", "directory", "redis"], help="default: directory")
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--every", type=int, default=50, help="iterations between checkpoints; 53,248 new ids in each")
    parser.add_argument("--cache-rows", type=int, default=120_000, help="of each of the two workers")
    arguments = parser.parse_args()
    print_json({"cpus": os.cpu_count(), "load": os.getloadavg()[0]})
    for millions in map(float, arguments.millions.split(",")):
        for store in arguments.store or ["directory"]:
            print_json(measure(store, millions, arguments))


if __name__ == "__main__":
    main()
