"""The start of workers, as `esd train` starts them: `python -m benchmarks.start`.

Starts one worker and four in turns, and prints how long it takes until all are ready, and the processor time of all
processes that this takes, the host that forks them included.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import tempfile
import time
from pathlib import Path
from statistics import median

from esd.run.worker_host import ForkedProcess, WorkerHost

_SECONDS = 120.0
_NOWHERE = "127.0.0.1:1"  # a worker is ready before it has found its dispatcher


def processor_seconds() -> float:
    """Processor time of the processes that this one has waited for, and of those that they have waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def start(workers: int, folder: Path) -> tuple[float, float]:
    """Starts so many workers and ends them again.

    Returns:
        Seconds until all are ready, and their processor time, in seconds.
    """
    before, begin = processor_seconds(), time.perf_counter()
    host = WorkerHost(folder / "host.log", _SECONDS)

    async def one(name: str) -> None:
        settings = {"NAME": name, "DISPATCHER": _NOWHERE, "LINK": "1e9", "CACHE_ROWS": "1000"}
        environment = os.environ | {f"ESD_WORKER_{key}": value for key, value in settings.items()}
        with (folder / f"{name}.log").open("ab") as log:
            worker = await host.start_worker((), environment, log.fileno())
        json.loads(await worker.stdout.readline())
        started.append(worker)

    started: list[ForkedProcess] = []
    async with asyncio.timeout(_SECONDS), asyncio.TaskGroup() as tasks:
        for number in range(workers):
            tasks.create_task(one(f"worker-{number}"))
    seconds = time.perf_counter() - begin
    for worker in started:
        worker.kill()
        await worker.wait()
    await host.close()
    return seconds, processor_seconds() - before


def main() -> None:
    """Measures and prints; one JSON object as the last line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.start", description=__doc__)
    parser.add_argument("--turns", type=int, default=5)
    turns = parser.parse_args().turns
    figures: dict[int, list[tuple[float, float]]] = {1: [], 4: []}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(turns):
            for workers, measured in figures.items():
                measured.append(asyncio.run(start(workers, Path(folder))))
                seconds, processor = measured[-1]
                print(f"{workers} workers: ready in {seconds:.2f} s, {processor:.2f} s of processor time", flush=True)
    (wall1, processor1), (wall4, processor4) = (
        [median(each) for each in zip(*figures[n], strict=True)] for n in (1, 4)
    )
    ratios = {"ready": wall4 / wall1, "processor": processor4 / processor1}
    print(f"four against one, medians: ready {ratios['ready']:.2f} x, processor time {ratios['processor']:.2f} x")
    print(json.dumps({"turns": {str(n): each for n, each in figures.items()}, "four_against_one": ratios}))


if __name__ == "__main__":
    main()
