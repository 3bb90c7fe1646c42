"""Processor time of the services by the number of workers, which train the same global batches.

    python -m benchmarks.growth [--workers 2,4,8,16,32] [--samples 512] [--turns 1] [--json]

Each number of workers trains a small model on a local cluster, whose links do not bind, after a warm-up. Prints
milliseconds of processor time per iteration: of the dispatcher with its shadows, of the parameter server, of the
driver, which sends the samples, and of one worker in the mean; and the bytes of rows that all workers move.
`esd bench dispatch --parts workers` has the decisions alone, without a process for each worker.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from dataclasses import asdict, dataclass
from statistics import fmean

from rich.console import Console
from rich.table import Table

from benchmarks.e2e.run import SELF, Window, measure
from esd.cli.report import print_json
from esd.run.options import RunOptions
from esd.run.stream import training_stream

_WARM_UP = 8


@dataclass(frozen=True, slots=True)
class Point:
    """One run. Milliseconds of processor time and bytes are per iteration.

    Attributes:
        workers: n.
        load: the machine's load average at the end of the run, including these processes.
        iterations: number of measured iterations.
        iterations_per_second: their rate.
        dispatcher_ms: of the dispatcher.
        server_ms: of the parameter server.
        driver_ms: of the process that sends the samples.
        worker_ms: of a worker, in the mean.
        moved_bytes: of the rows that all workers pull and push.
    """

    workers: int
    load: float
    iterations: int
    iterations_per_second: float
    dispatcher_ms: float
    server_ms: float
    driver_ms: float
    worker_ms: float
    moved_bytes: float

    @classmethod
    def of(cls, workers: int, window: Window) -> Point:
        """Returns the figures of a run."""
        ms = {name: 1e3 * each.total / window.iterations for name, each in window.processors.items()}
        return cls(
            workers=workers,
            load=os.getloadavg()[0],
            iterations=window.iterations,
            iterations_per_second=window.iterations / window.seconds,
            dispatcher_ms=ms["dispatcher"],
            server_ms=ms["ps-0"],
            driver_ms=ms[SELF],
            worker_ms=fmean(spent for name, spent in ms.items() if name.startswith("worker-")),
            moved_bytes=float(window.pulled.sum() + window.pushed.sum()) / window.iterations,
        )


def train(workers: int, samples: int, iterations: int) -> Point:
    """Trains with so many workers, which have `samples` samples of an iteration together."""
    options = RunOptions(
        data="synthetic:criteo",
        workers=workers,
        links="10g",
        batch=samples // workers,
        dim=16,
        hidden="16",
        cache_rows=8_000,
        iterations=_WARM_UP + iterations,
        checkpoint_every=0,
    )
    assert options.cache_rows is not None  # noqa: S101 - given above
    return Point.of(workers, asyncio.run(measure(options, training_stream(options), options.cache_rows, _WARM_UP)))


def main() -> None:
    """Trains with each number of workers in turn, and prints a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", default="2,4,8,16,32", help="numbers of workers, with commas between them")
    parser.add_argument("--samples", type=int, default=512, help="samples of an iteration, a multiple of each of them")
    parser.add_argument("--iterations", type=int, default=40, help="iterations after the warm-up")
    parser.add_argument("--turns", type=int, default=1, help="runs of each: 2 4 8 2 4 8 ...")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    sizes = [int(each) for each in given.workers.split(",")]
    if uneven := [size for size in sizes if given.samples % size]:
        parser.error(f"--samples {given.samples} is no multiple of {uneven[0]} workers")
    points = []
    for _ in range(given.turns):
        for size in sizes:
            points.append(train(size, given.samples, given.iterations))
            print(points[-1], file=sys.stderr)
    if given.json:
        print_json({"points": [asdict(each) for each in points]})
        return
    table = Table("workers", "it/s", "dispatcher", "parameter server", "driver", "a worker", "MB moved")
    for each in points:
        ms = (f"{value:.1f}" for value in (each.dispatcher_ms, each.server_ms, each.driver_ms, each.worker_ms))
        table.add_row(str(each.workers), f"{each.iterations_per_second:.2f}", *ms, f"{each.moved_bytes / 1e6:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
