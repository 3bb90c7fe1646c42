"""Kills processes of real runs at random moments, and compares each run's model with an undisturbed one: `make chaos`.

Every run trains the same stream on a cluster of local processes. Once, at an iteration drawn from the seed, something
is killed (`kill -9`) or stopped for longer than its lease. The run must end by itself, with the undisturbed run's model
bit by bit, its loss and AUC, and every sample trained exactly once.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from services.cli import train
from services.cli.launcher import LocalCluster, ServiceProcess
from services.cli.options import RunOptions
from services.cli.report import Result
from services.domain.errors import EsdError
from services.domain.state import JobState
from services.domain.tables import OptimizerKind
from tests.support.redis_server import RedisServer, redis_server

LIMIT_SECONDS = 15 * 60
STOPPED_SECONDS = 7.0  # longer than a lease
OPTIONS = RunOptions(
    workers=2,
    links="1g,200m",
    batch=32,
    dim=16,
    cache_rows=900,
    optimizer=OptimizerKind.ADAM,
    learning_rate=0.002,
    iterations=200,
    seed=1,
    checkpoint_every=40,
)
FIGURES = ("iterations", "samples", "loss", "auc", "operations", "cost_seconds")


@dataclass
class Fault:
    """Something that happens to a run once, and what was seen of it.

    Attributes:
        name: what happens.
        store: `redis` or `directory`.
        strike: makes it happen.
        iteration: when: as soon as so many are confirmed.
    """

    name: str
    store: str
    strike: Callable[[LocalCluster], None]
    iteration: int
    _struck_at: float = 0.0
    _before: JobState | None = None
    recovered_after: float | None = None
    _recoveries: list[float] = field(default_factory=list)

    def __call__(self, cluster: LocalCluster, state: JobState) -> None:
        """Sees every polled state."""
        now = time.monotonic()
        if self._before is None:
            if state.iterations_confirmed >= self.iteration:
                self._before, self._struck_at = state, now
                self.strike(cluster)
        elif self.recovered_after is None and self._recovered(self._before, state):
            self.recovered_after = now - self._struck_at
            self._recoveries = [each.seconds for each in state.recoveries]

    @property
    def happened(self) -> bool:
        """Whether its moment came."""
        return self._before is not None

    @property
    def noticed_after(self) -> float | None:
        """Seconds until the epoch ended, as far as the dispatcher that ended it is still there to tell."""
        if self.recovered_after is None or not self._recoveries:
            return None
        return max(0.0, self.recovered_after - sum(self._recoveries))

    def redone(self, final: JobState | None) -> int:
        """Iterations that were trained twice."""
        if self._before is None or final is None or final.epoch == self._before.epoch:
            return 0
        return sum(each.iterations_redone for each in final.recoveries) or (
            self._before.iterations_confirmed - self._before.checkpoint
        )

    @staticmethod
    def _recovered(before: JobState, now: JobState) -> bool:
        """A new iteration is trained: in the next epoch, or where none was needed, beyond all that was planned."""
        if now.epoch > before.epoch:
            return now.iterations_confirmed > now.checkpoint
        return not now.recoveries and now.iterations_confirmed > before.iterations_planned


def kill(choose: Callable[[LocalCluster], ServiceProcess]) -> Callable[[LocalCluster], None]:
    """One process gets SIGKILL."""
    return lambda cluster: choose(cluster).process.send_signal(signal.SIGKILL)


def stop_for_a_while(choose: Callable[[LocalCluster], ServiceProcess]) -> Callable[[LocalCluster], None]:
    """A process that does nothing for longer than its lease, as one whose network is cut off."""

    def strike(cluster: LocalCluster) -> None:
        pid = choose(cluster).process.pid
        os.kill(pid, signal.SIGSTOP)
        threading.Timer(STOPPED_SECONDS, os.kill, (pid, signal.SIGCONT)).start()

    return strike


def restart(redis: RedisServer) -> Callable[[LocalCluster], None]:
    """Redis gets SIGKILL, and is then started again on its files."""

    def strike(_: LocalCluster) -> None:
        redis.kill()
        redis.start()

    return strike


def draw(rng: random.Random, redis: RedisServer) -> Fault:
    """A random fault at a random moment."""
    assert OPTIONS.iterations is not None  # noqa: S101 - it is a constant above
    moment = rng.randrange(1, int(0.8 * OPTIONS.iterations))
    store = rng.choice(("redis", "directory"))
    slot = rng.randrange(OPTIONS.workers)
    faults = {
        f"kill worker {slot}": kill(lambda cluster: cluster.workers[slot]),
        "kill dispatcher": kill(lambda cluster: cluster.dispatcher),
        "kill ps_server": kill(lambda cluster: cluster.parameter_servers[0]),
        f"stop worker {slot} for {STOPPED_SECONDS:g} s": stop_for_a_while(lambda cluster: cluster.workers[slot]),
        "kill redis": restart(redis),
    }
    name = rng.choice(list(faults))
    return Fault(name, "redis" if name == "kill redis" else store, faults[name], moment)


@contextlib.contextmanager
def emptied(redis: RedisServer) -> Iterator[str]:
    """The URL of an empty Redis."""
    redis.cli("flushall")
    yield redis.url


def run(store: str, redis: RedisServer, place: Path, watch: train.Watch) -> tuple[Result, JobState | None]:
    """Trains once; the result and the last state that was polled."""
    last: list[JobState] = []

    def see(cluster: LocalCluster, state: JobState) -> None:
        last[:] = [state]
        watch(cluster, state)

    if store == "redis":
        with emptied(redis) as url:
            result = train.run(OPTIONS, store=url, shards=1, out=place, watch=see)
    else:
        result = train.run(OPTIONS, store="memory", shards=1, out=place, checkpoint_dir=place / "kept", watch=see)
    return result, last[0] if last else None


def difference(place: Path, undisturbed: Path) -> float:
    """Largest relative distance of an array of the model; 0 is bit by bit. Infinite if rows or versions differ."""
    with np.load(place / "model.npz") as model, np.load(undisturbed / "model.npz") as expected:
        if any(not np.array_equal(model[name], expected[name]) for name in ("ids", "versions")):
            return float("inf")
        names = [name for name in expected.files if name not in ("ids", "versions")]
        return max(
            float(np.linalg.norm(model[name] - expected[name])) / (float(np.linalg.norm(expected[name])) or 1.0)
            for name in names
        )


def main() -> None:
    """Runs the faults and prints a table; the exit code tells whether all ended well."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    console, progress = Console(width=150), Console(stderr=True, width=200)
    rng = random.Random(arguments.seed)  # noqa: S311 - no secret
    table = Table(
        "run",
        "fault",
        "store",
        "iteration",
        "noticed, s",
        "recovered, s",
        "redone",
        "model",
        "seconds",
        show_edge=False,
    )
    started = time.monotonic()
    good = 0
    with tempfile.TemporaryDirectory(prefix="esd-chaos-") as name, redis_server(Path(name)) as redis:
        folder = Path(name)
        expected, _ = run("directory", redis, folder / "undisturbed", lambda _cluster, _state: None)
        for number in range(1, arguments.runs + 1):
            if time.monotonic() - started > LIMIT_SECONDS:
                console.print(f"stopped after {LIMIT_SECONDS} s")
                break
            fault = draw(rng, redis)
            began = time.monotonic()
            final, verdict, ended_well = None, "", False
            place = folder / str(number)
            try:
                result, final = run(fault.store, redis, place, fault)
                distance = difference(place, folder / "undisturbed")
                differing = [figure for figure in FIGURES if result[figure] != expected[figure]]
                ended_well = fault.happened and distance == 0 and not differing
                verdict = "bit-identical" if distance == 0 else f"off by {distance:.1e}"
                verdict += "".join(f", {figure} differs" for figure in differing)
            except EsdError as error:
                verdict = str(error).splitlines()[0]
            good += ended_well
            row = (
                str(number), fault.name, fault.store, str(fault.iteration), _seconds(fault.noticed_after),
                _seconds(fault.recovered_after), str(fault.redone(final)), verdict, f"{time.monotonic() - began:.1f}",
            )  # fmt: skip
            table.add_row(*row)
            progress.print(" | ".join(row), markup=False, highlight=False)
    console.print(table)
    console.print(f"{good} of {arguments.runs} ended by themselves with the undisturbed model (seed {arguments.seed})")
    sys.exit(0 if good == arguments.runs else 1)


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


if __name__ == "__main__":
    main()
