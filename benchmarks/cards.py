"""Ways to sum dense gradients where each worker has one network card: `python -m benchmarks.cards` (root).

Rows, plans, samples and dense gradients of a worker share its link, as on real machines. Services run as in a cluster,
each worker in a network namespace of its own, and the kernel holds the links to their speeds; or, to compare, the
workers do. Every way trains the same samples in turn. Prints iterations per second, the bytes that the kernel counted
at each card and the bytes that the workers counted, and the figures of the model.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.services_on_machines import ESD, WorkerLink, dispatcher_at, server_at, services
from esd.run.links import parse_links
from esd.services.domain.reports import LINK_DIRECTIONS
from testbed.cards import Cable, Machine, machines

_WAITS = ("plan_wait", "push", "pull", "all_reduce")
_LONGEST_RUN = 1800.0  # seconds
KERNEL, WORKERS = "kernel", "workers"  # which hold the links to their speeds
_FASTEST = 125e6  # bytes per second of a card where the workers hold their links


@dataclass(frozen=True, slots=True)
class Measured:
    """One run.

    Attributes:
        dense: the way to sum dense gradients.
        held_by: `kernel` or `workers`, which hold the links to their speeds.
        iterations_per_second: by the dispatcher, from the first plan on.
        sent: bytes per iteration that each worker's card sent.
        received: bytes per iteration that each worker's card received.
        counted_sent: bytes per iteration that each worker has counted (`link_bytes`), by kind.
        counted_received: likewise.
        counted_share: all counted bytes, divided by all bytes that the kernel counted.
        phase_ms: milliseconds per iteration that a worker spends in each phase.
        round_trips: the time per iteration in which a worker waits for plans, rows and sums, which also wait for the
            other workers, in round trips; 0 where the cables have no delay.
        auc: of the run, progressive.
        loss: likewise.
    """

    dense: str
    held_by: str
    iterations_per_second: float
    sent: list[int]
    received: list[int]
    counted_sent: dict[str, list[int]]
    counted_received: dict[str, list[int]]
    counted_share: float
    phase_ms: dict[str, float]
    round_trips: float
    auc: float
    loss: float


def measure(options: argparse.Namespace, dense: str, held_by: str, logs: Path) -> Measured:
    """Trains once, and returns the figures."""
    speeds = parse_links(options.links, options.workers)
    cable = Cable(options.round_trip / 1000, options.lose_one_in, options.congestion)
    cards = speeds if held_by == KERNEL else [_FASTEST] * len(speeds)
    links = [WorkerLink(speed, options.cache_rows, shaped=held_by == WORKERS) for speed in speeds]
    chosen = {"lanes": options.lanes, "congestion": options.own_congestion}
    with machines(cards, cable) as (hub, workers), services(hub, workers, links, logs, **chosen):
        before = [machine.carried(hub) for machine in workers]
        result = _train(hub, options, dense)
        after = [machine.carried(hub) for machine in workers]
    carried = [
        [(last - first) // options.iterations for first, last in zip(*ends, strict=True)]
        for ends in zip(before, after, strict=True)
    ]
    sent, received = ([each[direction] for each in carried] for direction in (0, 1))
    counted_sent, counted_received = (_counted(result, way, options.iterations) for way in LINK_DIRECTIONS)
    counted = sum(sum(sizes) for each in (counted_sent, counted_received) for sizes in each.values())
    share = round(counted / sum(map(sum, carried)), 4)
    phase_ms = {
        phase: round(1e3 * seconds / options.iterations, 1) for phase, seconds in result["phase_seconds"].items()
    }
    waited = sum(phase_ms[phase] for phase in _WAITS)
    round_trips = round(waited / options.round_trip, 2) if options.round_trip else 0.0
    speed, auc, loss = (result[figure] for figure in ("iterations_per_second", "auc", "loss"))
    return Measured(
        dense, held_by, speed, sent, received, counted_sent, counted_received, share, phase_ms, round_trips, auc, loss
    )


def _counted(result: dict[str, Any], direction: str, iterations: int) -> dict[str, list[int]]:
    """Returns the bytes per iteration that each worker has counted in one direction, by kind."""
    return {kind: [size // iterations for size in carried[direction]] for kind, carried in result["link_bytes"].items()}


def _train(hub: Machine, options: argparse.Namespace, dense: str) -> dict[str, Any]:
    services = ("--dispatcher", dispatcher_at(hub), "--parameter-servers", server_at(hub))
    job = ("--data", options.data, "--model", "wdl", "--dim", str(options.dim), "--hidden", options.hidden)
    way = ("--mechanism", options.mechanism, "--dense", dense, "--checkpoint-every", "0")
    size = ("--workers", str(options.workers), "--batch", "64", "--iterations", str(options.iterations))
    command = hub.command(ESD, "train", *services, *job, *way, *size, "--json")
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=_LONGEST_RUN)  # noqa: S603
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    """Measures every way in turn, and prints a line of JSON for each run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--links", default="100m,100m,10m,10m", help="speed of each worker's card, bits per second")
    parser.add_argument("--round-trip", type=float, default=0.0, help="delay of a packet and its answer, milliseconds")
    parser.add_argument("--lose-one-in", type=int, default=0, help="frames of which one is lost; 0: none")
    parser.add_argument("--congestion", default="", help="congestion control of TCP; default: the kernel's")
    parser.add_argument("--lanes", type=int, default=0, help="connections that carry each one of a worker; 0: itself")
    parser.add_argument("--own-congestion", default="", help="of the services' connections alone, which they choose")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--dense", nargs="+", default=["all-reduce", "server", "low-rank:8"])
    parser.add_argument("--held-by", nargs="+", choices=[KERNEL, WORKERS], default=[KERNEL])
    parser.add_argument("--mechanism", default="joint")
    parser.add_argument("--data", default="flights")
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--hidden", default="256,128")
    parser.add_argument("--cache-rows", type=int, default=4000)
    parser.add_argument("--iterations", type=int, default=30)
    parser.add_argument("--turns", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as logs:
        for _ in range(options.turns):
            for dense, held_by in product(options.dense, options.held_by):
                print(json.dumps(asdict(measure(options, dense, held_by, Path(logs)))), flush=True)


if __name__ == "__main__":
    main()
