"""Trains for many iterations and watches every process: memory, file descriptors, threads: `python -m hardening.soak`.

All services run as processes. After a warm-up the memory of each must grow by less than 1 MB per 1,000 iterations (the
slope of a least-squares line), and the numbers of its file descriptors and threads must stay as they are.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from esd.run.cluster import LocalServices
from esd.run.driver import drive
from esd.run.events import on_progress
from esd.run.options import RunOptions
from esd.run.stream import training_stream
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.domain.jobs import RowLimitPolicy
from esd.services.domain.state import JobState
from testbed.redis_server import redis_server

OPTIONS = RunOptions(
    data="synthetic:zipf?fields=4&keys=5000",
    workers=2,
    links="1g",
    batch=4,
    dim=8,
    cache_rows=1000,
    seed=1,
    checkpoint_every=500,
)
# Ever new ids: most rows of an iteration are new, and as many others are forgotten.
FULL_TABLE = replace(
    OPTIONS, data="synthetic:zipf?fields=4&keys=1000000", max_rows=2_000, at_max_rows=RowLimitPolicy.FORGET
)
# The same ids, each of which is forgotten by the 50th iteration in a row that does not train it.
TIME_TO_LIVE = replace(OPTIONS, data="synthetic:zipf?fields=4&keys=1000000", row_ttl=50)
WARM_UP = 0.25  # of the iterations
SAMPLES = 400  # of each process over the whole run
MOST_GROWTH = 1.0  # MB per 1,000 iterations
MOST_LATECOMERS = 2  # threads of a pool, each with a descriptor, that are first needed late


@dataclass
class Course:
    """One process over time: iteration, resident memory in MB, file descriptors and threads of each sample."""

    iterations: list[int] = field(default_factory=list)
    megabytes: list[float] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)
    threads: list[int] = field(default_factory=list)

    def sample(self, iteration: int, pid: int) -> None:
        """Looks at the process now."""
        process = Path(f"/proc/{pid}")
        status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
        self.iterations.append(iteration)
        self.megabytes.append(int(status["VmRSS"].split()[0]) / 1024)
        self.threads.append(int(status["Threads"]))
        self.descriptors.append(len(list((process / "fd").iterdir())))

    def after(self, iteration: int) -> Course:
        """Returns the samples from an iteration on."""
        first = int(np.searchsorted(self.iterations, iteration))
        return Course(self.iterations[first:], self.megabytes[first:], self.descriptors[first:], self.threads[first:])

    @property
    def growth(self) -> float:
        """Slope of the memory, MB per 1,000 iterations."""
        return 1000 * float(np.polyfit(self.iterations, self.megabytes, 1)[0])

    @property
    def steady(self) -> bool:
        """Whether memory is flat, and the second half has no more descriptors or threads than the first."""
        return self.growth < MOST_GROWTH and not _rises(self.descriptors) and not _rises(self.threads)


def _rises(counts: list[int]) -> bool:
    half = len(counts) // 2
    return float(np.median(counts[half:])) > float(np.median(counts[:half])) + MOST_LATECOMERS


async def soak(options: RunOptions, store: str, folder: Path) -> dict[str, Course]:
    """Trains, and returns the course of every process by its name."""
    iterations = options.iterations or 0
    stream = training_stream(options)
    courses: dict[str, Course] = {}
    async with (
        LocalServices(
            shards=1,
            store=store,
            worker_links=options.bandwidths(),
            cache_rows=[options.cache_size(stream.whole).rows] * options.workers,
            logs=folder,
            checkpoint_dir=folder / "kept" if store == "memory" else None,
        ) as cluster,
        AsyncDispatcherClient(cluster.dispatcher.address) as client,
    ):
        job = options.job(
            features=stream.dataset.features,
            dense_features=stream.dataset.dense_features,
            parameter_servers=(cluster.parameter_servers[0].address,),
        )
        job = replace(job, model=replace(job.model, hidden=(16,)))
        step = max(1, iterations // SAMPLES)

        def sample(state: JobState) -> None:
            done = state.iterations_confirmed
            last = max((course.iterations[-1] for course in courses.values()), default=-step)
            if 0 < done < iterations and done - last >= step:  # a worker ends with the stream
                for service in cluster.services:
                    courses.setdefault(service.name, Course()).sample(done, service.process.pid)

        await drive(client, job, stream, on_progress(sample))
    return courses


def main() -> None:
    """Prints a table, and the figures as JSON in the last line; the exit code tells whether all is steady."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=20_000)
    parser.add_argument("--store", choices=("memory", "redis"), default="memory")
    parser.add_argument("--full-table", action="store_true", help="ever new ids in a table of 2,000 rows")
    parser.add_argument("--time-to-live", action="store_true", help="ever new ids that live 50 iterations")
    arguments = parser.parse_args()
    ids = FULL_TABLE if arguments.full_table else TIME_TO_LIVE if arguments.time_to_live else OPTIONS
    options = replace(ids, iterations=arguments.iterations)
    began = time.monotonic()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="esd-soak-")))
        store = "memory" if arguments.store == "memory" else stack.enter_context(redis_server(folder)).url
        courses = asyncio.run(soak(options, store, folder))
    warm = {name: course.after(int(WARM_UP * arguments.iterations)) for name, course in courses.items()}
    Console(width=120).print(_table(warm))
    run = {"iterations": arguments.iterations, "store": arguments.store, "seconds": time.monotonic() - began}
    sys.stdout.write(json.dumps(run | _figures(warm)) + "\n")
    sys.exit(0 if all(course.steady for course in warm.values()) else 1)


def _table(courses: Mapping[str, Course]) -> Table:
    table = Table("process", "MB", "MB per 1,000 iterations", "descriptors", "threads", "steady", show_edge=False)
    for name, course in courses.items():
        table.add_row(
            name, f"{course.megabytes[0]:.0f} to {course.megabytes[-1]:.0f}", f"{course.growth:+.3f}",
            _span(course.descriptors), _span(course.threads), "yes" if course.steady else "NO",
        )  # fmt: skip
    return table


def _span(counts: list[int]) -> str:
    return f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"


def _figures(courses: Mapping[str, Course]) -> dict[str, object]:
    return {
        "processes": {
            name: {
                "megabytes": [round(course.megabytes[0], 1), round(course.megabytes[-1], 1)],
                "megabytes_per_1000_iterations": round(course.growth, 4),
                "descriptors": [min(course.descriptors), max(course.descriptors)],
                "threads": [min(course.threads), max(course.threads)],
                "steady": course.steady,
            }
            for name, course in courses.items()
        }
    }


if __name__ == "__main__":
    main()
