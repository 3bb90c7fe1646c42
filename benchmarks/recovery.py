"""The time that a run takes to recover with a large table, and the cost of its checkpoints.

    python -m benchmarks.recovery recovery [--store directory --store redis] [--gigabytes 1]
    python -m benchmarks.recovery overhead [--iterations 2500]

`recovery` trains new rows until the table has its size, takes a checkpoint, trains on, kills a process (`kill -9`), and
measures until the first iteration of the next epoch is confirmed. `overhead` trains at the default settings and
compares the iterations at a checkpoint with the others.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from esd.cli.console import messages
from esd.cli.report import print_json
from esd.run.cluster import LocalServices
from esd.run.driver import drive
from esd.run.events import on_progress
from esd.run.options import RunOptions
from esd.run.services import ServiceProcess
from esd.run.stream import TrainingStream, training_stream
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.domain.batches import SampleBatch
from esd.services.domain.features import Feature, numbered_ids
from esd.services.domain.jobs import JobSpec
from esd.services.domain.state import JobState
from testbed.redis_server import redis_server

FIELDS = 26
BATCH = 2048  # samples of an iteration: about 53,000 new rows while the table grows
REDONE = 4  # iterations between the cut and the fault, at least: it comes when the checkpoint is written
AFTER = 300  # iterations that are left at the cut: writing the checkpoint of a large table takes as long as many
OPTIONS = RunOptions(workers=2, links="10g", batch=BATCH // 2, cache_rows=120_000)

VICTIMS: dict[str, Callable[[LocalServices], ServiceProcess]] = {
    "worker": lambda cluster: cluster.workers[1],
    "dispatcher": lambda cluster: cluster.dispatcher,
    "ps_server": lambda cluster: cluster.parameter_servers[0],
}


@dataclass(frozen=True)
class NewRows:
    """A stream in which every id is new, then one of ids that were seen."""

    iterations: int
    grows_for: int

    def __iter__(self) -> Iterator[SampleBatch]:
        rng = np.random.default_rng(0)
        for iteration in range(self.iterations):
            first = iteration % self.grows_for * BATCH * FIELDS
            ids = np.arange(first, first + BATCH * FIELDS, dtype=np.uint64).reshape(BATCH, FIELDS)
            labels = rng.integers(0, 2, BATCH).astype(np.float32)
            yield SampleBatch.of_fields(ids, np.empty((BATCH, 0), np.float32), labels)


class Recovered(Exception):
    """All is measured; `args` are the seconds from the fault on, and the job's state."""


class Fault:
    """Kills a process once, and measures until all have trained an iteration of the next epoch."""

    def __init__(self, victim: Callable[[LocalServices], ServiceProcess], iteration: int) -> None:
        self._victim = victim
        self._iteration = iteration
        self._struck: float | None = None
        self._epoch = 0

    def __call__(self, cluster: LocalServices, state: JobState) -> None:
        """Sees every polled state. Raises Recovered at the end."""
        if self._struck is None:
            if state.iterations_confirmed >= self._iteration and state.checkpoint:
                self._epoch, self._struck = state.epoch, time.monotonic()
                self._victim(cluster).process.send_signal(signal.SIGKILL)
        elif state.epoch > self._epoch and state.iterations_confirmed > state.checkpoint:
            raise Recovered(time.monotonic() - self._struck, state)


async def train(
    stream: NewRows | TrainingStream, options: RunOptions, store: dict[str, Any],
    shape: tuple[tuple[Feature, ...], tuple[str, ...]], place: Path,
    watch: Callable[[LocalServices, JobState], None],
) -> JobState:  # fmt: skip
    """Trains a stream of these features on local processes that are started again when they die."""
    caches = [options.cache_rows or 0] * options.workers
    async with (
        LocalServices(shards=1, worker_links=options.bandwidths(), cache_rows=caches, logs=place, **store) as cluster,
        AsyncDispatcherClient(cluster.dispatcher.address) as client,
    ):
        servers = tuple(server.address for server in cluster.parameter_servers)
        job: JobSpec = options.job(features=shape[0], dense_features=shape[1], parameter_servers=servers)
        supervisor = asyncio.create_task(cluster.supervisor.supervise(5, lambda event: messages.print(str(event))))
        try:
            return await drive(client, job, stream, on_progress(lambda state: watch(cluster, state)))
        finally:
            supervisor.cancel()


@contextlib.contextmanager
def opened(kind: str) -> Iterator[tuple[dict[str, Any], Path]]:
    """Yields the options of a store of that kind, and a directory for logs."""
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="esd-recovery-")))
        if kind == "redis":
            yield {"store": stack.enter_context(redis_server(place)).url}, place
        else:
            yield {"store": "memory", "checkpoint_dir": place / "kept"}, place


def recovery(kind: str, victim: str, gigabytes: float) -> dict[str, Any]:
    """Returns the seconds from the fault to the first iteration of the next epoch."""
    job = OPTIONS.job(features=numbered_ids(FIELDS), dense_features=(), parameter_servers=("any",))
    grows_for = max(1, round(gigabytes * 1e9 / (BATCH * FIELDS * job.table.row_bytes)))
    options = replace(OPTIONS, checkpoint_every=grows_for)
    fault = Fault(VICTIMS[victim], grows_for + REDONE)
    with opened(kind) as (store, place):
        stream = NewRows(grows_for + REDONE + AFTER, grows_for)
        try:
            asyncio.run(train(stream, options, store, (numbered_ids(FIELDS), ()), place, fault))
            raise AssertionError("the run was over before it had recovered")
        except Recovered as recovered:
            seconds, state = recovered.args
    rows = grows_for * BATCH * FIELDS
    return {
        "store": kind,
        "killed": victim,
        "rows": rows,
        "gigabytes": rows * job.table.row_bytes / 1e9,
        "seconds": seconds,
        "of_these_after_notice": [each.seconds for each in state.recoveries],
        "iterations_redone": [each.iterations_redone for each in state.recoveries],
    }


def overhead(iterations: int) -> dict[str, Any]:
    """Returns the time that a checkpoint adds to its interval at the default settings, as a share of the interval."""
    options = replace(RunOptions(), iterations=iterations, cache_rows=7882)  # --cache-ratio 0.08 of flights
    stream = training_stream(options)
    seen: list[tuple[int, float]] = []  # iterations, and when they were first seen to be confirmed

    def watch(_: LocalServices, state: JobState) -> None:
        if not seen or state.iterations_confirmed > seen[-1][0]:
            seen.append((state.iterations_confirmed, time.monotonic()))

    dataset = stream.dataset
    with opened("directory") as (store, place):
        shape = dataset.features, dataset.dense_features
        asyncio.run(train(stream, options, store, shape, place, watch))
    every = options.checkpoint_every
    times = np.interp(np.arange(iterations + 1), [count for count, _ in seen], [at for _, at in seen])
    spans = {at: times[at + 25] - times[at - 25] for at in range(50, iterations - 50, 25)}
    at_cuts = [span for at, span in spans.items() if at % every == 0]
    usual = statistics.median(span for at, span in spans.items() if at % every)
    extra = statistics.mean(at_cuts) - usual
    return {
        "iterations_per_second": 50 / usual,
        "checkpoints": len(at_cuts),
        "seconds_per_checkpoint": extra,
        "share_of_interval": extra / (every * usual / 50),
    }


def main() -> None:
    """Prints one JSON object per measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["recovery", "overhead"])
    parser.add_argument("--store", action="append", choices=["directory", "redis"], help="default: both")
    parser.add_argument("--victim", action="append", choices=list(VICTIMS), help="default: all")
    parser.add_argument("--gigabytes", type=float, default=1.0, help="of rows with their optimizer state")
    parser.add_argument("--iterations", type=int, default=1250, help="of overhead; flights has 1,278")
    arguments = parser.parse_args()
    print_json({"cpus": os.cpu_count(), "load": os.getloadavg()[0]})
    if arguments.what == "overhead":
        print_json(overhead(arguments.iterations))
        return
    for kind in arguments.store or ["directory", "redis"]:
        for victim in arguments.victim or list(VICTIMS):
            if (kind, victim) != ("redis", "ps_server"):  # nothing is redone there
                print_json(recovery(kind, victim, arguments.gigabytes))


if __name__ == "__main__":
    main()
