"""Training with observers that do not read (WatchPlans) against training without any, in pairs of runs.

    python -m benchmarks.observers [--pairs 5] [--observers 10] [--iterations 600]

Each observer asks for all plans with ids, reads the first ones, and nothing after that. The second half of each run is
measured, when the buffers of the observers' connections are full. The runs of a pair follow each other, and the first
one alternates. The time of an iteration depends on the load of the machine; the processor time of the dispatcher, which
serves the observers, hardly does.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from benchmarks.e2e.processors import ProcessorTime
from esd.cli.console import messages
from esd.cli.report import print_json
from esd.run.events import Event, Progressed, Started
from esd.run.options import RunOptions
from esd.run.services import ServiceProcess
from esd.run.train import train
from esd.services.clients.dispatcher_async import AsyncDispatcherClient

OPTIONS = RunOptions(data="synthetic:criteo", workers=2, links="1g", batch=128, cache_rows=20_000)


async def measure(iterations: int, observers: int) -> tuple[float, float]:
    """Trains once, with observers that do not read, and measures the second half of the iterations.

    Returns:
        The time of an iteration, and the dispatcher's processor time for it, in seconds.
    """
    looks: list[tuple[int, float, float]] = []  # iterations, wall time, the dispatcher's processor time
    opening: list[asyncio.Task[None]] = []
    dispatcher: list[ServiceProcess] = []

    async with AsyncExitStack() as stack:

        async def observe(address: str) -> None:
            client = await stack.enter_async_context(AsyncDispatcherClient(address))
            plans = client.watch_plans(OPTIONS.data_name, 0, ids=True)
            stack.push_async_callback(plans.aclose)
            await anext(plans)

        def listen(event: Event) -> None:
            match event:
                case Started(cluster=cluster) if cluster is not None:
                    dispatcher.append(cluster.dispatcher)
                case Progressed(state=state):
                    (service,) = dispatcher
                    if not opening:
                        opening.extend(asyncio.create_task(observe(service.address)) for _ in range(observers))
                    if state.iterations_confirmed >= iterations // 2:
                        used = ProcessorTime.of(service.process.pid).total
                        looks.append((state.iterations_confirmed, time.perf_counter(), used))

        with tempfile.TemporaryDirectory(prefix="esd-observers-") as folder:
            await train(replace(OPTIONS, iterations=iterations), listen, out=Path(folder), shadows=())
        await asyncio.gather(*opening)
    last = next(look for look in looks if look[0] == looks[-1][0])  # the end of training, before the flush
    trained, seconds, used = (end - begin for begin, end in zip(looks[0], last, strict=True))
    return seconds / trained, used / trained


def main() -> None:
    """Prints the figures as JSON."""
    parser = argparse.ArgumentParser(description="Training with observers that do not read against training without.")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--observers", type=int, default=10)
    parser.add_argument("--iterations", type=int, default=600)
    options = parser.parse_args()
    pairs = []
    for pair in range(options.pairs):
        counts = (0, options.observers) if pair % 2 == 0 else (options.observers, 0)
        found = {count: asyncio.run(measure(options.iterations, count)) for count in counts}
        pairs.append((found[0], found[options.observers]))
        messages.print(f"pair {pair + 1}: {_ratios(pairs[-1])}", highlight=False)
    names = ("iteration", "dispatcher_processor")
    print_json(
        {
            f"{name}_{what}": values
            for at, name in enumerate(names)
            for what, values in (
                ("seconds", [[without[at], watched[at]] for without, watched in pairs]),
                ("ratio_median", statistics.median(watched[at] / without[at] for without, watched in pairs)),
            )
        }
    )


def _ratios(pair: tuple[tuple[float, float], tuple[float, float]]) -> str:
    without, watched = pair
    return (
        f"{1e3 * watched[0]:.2f} ms an iteration against {1e3 * without[0]:.2f}, "
        f"{1e3 * watched[1]:.2f} ms of the dispatcher's processor time against {1e3 * without[1]:.2f}"
    )


if __name__ == "__main__":
    main()
