"""Speed over links with latency, beside a plain server with one round trip: `python -m benchmarks.round_trips` (root).

Both train the same batches of the same size over the same cables, in turn: ESD, and the
uncached parameter server of `benchmarks.plain_server`. Prints a line of JSON for each pair.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

from benchmarks.cards import KERNEL, measure
from benchmarks.plain_server import DIM
from esd.run.links import parse_links
from testbed.cards import Cable, Machine, machines

_PORT = 50053  # in a namespace of its own
_LONGEST_RUN = 600.0  # seconds


@dataclass(frozen=True, slots=True)
class Pair:
    """One run of each.

    Attributes:
        round_trip: milliseconds that a packet and its answer take.
        lose_one_in: frames of which one is lost; 0: none.
        hidden: widths of the hidden layers.
        iterations_per_second: of ESD.
        plain: iterations per second of the plain server.
        ratio: the first, divided by the second.
        phase_ms: milliseconds per iteration that a worker of ESD spends in each phase.
    """

    round_trip: float
    lose_one_in: int
    hidden: str
    iterations_per_second: float
    plain: float
    ratio: float
    phase_ms: dict[str, float]


def measure_pair(options: argparse.Namespace, logs: Path) -> Pair:
    """Trains with ESD, and then with the plain server."""
    ours = measure(options, options.dense, KERNEL, logs)
    cable = Cable(options.round_trip / 1000, options.lose_one_in, options.congestion)
    with machines(parse_links(options.links, options.workers), cable) as (hub, workers):
        plain = _train_plain(hub, workers, options.hidden, options.iterations)
    speed = round(ours.iterations_per_second, 2)
    return Pair(
        options.round_trip,
        options.lose_one_in,
        options.hidden,
        speed,
        round(plain, 2),
        round(speed / plain, 2),
        ours.phase_ms,
    )


def _train_plain(hub: Machine, workers: Sequence[Machine], hidden: str, iterations: int) -> float:
    """Returns the iterations per second of the first worker."""
    place = (str(len(workers)), f"{hub.address}:{_PORT}", hidden)

    def run(machine: Machine, role: str, *more: str) -> subprocess.Popen[str]:
        command = machine.command(sys.executable, "-m", "benchmarks.plain_server", role, *place, *more)
        process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))  # noqa: S603 - ours
        stack.callback(process.kill)
        return process

    with ExitStack() as stack:
        server = run(hub, "serve")
        if server.stdout is None or server.stdout.readline() != "listening\n":
            raise RuntimeError("the plain server has not started; its message is on standard error")
        working = [run(machine, "work", str(rank), str(iterations)) for rank, machine in enumerate(workers)]
        printed = [each.communicate(timeout=_LONGEST_RUN)[0] for each in working]
        return float(printed[0])


def main() -> None:
    """Measures every setting in turn."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--links", default="1g", help="speed of each worker's card, bits per second")
    parser.add_argument("--round-trip", type=float, nargs="+", default=[50.0, 20.0], help="milliseconds")
    parser.add_argument("--lose-one-in", type=int, nargs="+", default=[0, 200], help="frames of which one is lost")
    parser.add_argument("--congestion", default="", help="congestion control of TCP; default: the kernel's")
    parser.add_argument("--lanes", type=int, default=0, help="connections that carry each one of a worker; 0: itself")
    parser.add_argument("--dense", default="server", help="way of ESD to sum dense gradients")
    parser.add_argument("--own-congestion", default="", help="of ESD's connections alone, which its services choose")
    parser.add_argument("--hidden", nargs="+", default=["16", "256,128"])
    parser.add_argument("--iterations", type=int, default=60)
    parser.add_argument("--turns", type=int, default=1)
    options = parser.parse_args()
    settings = list(product(options.round_trip, options.lose_one_in, options.hidden))
    with tempfile.TemporaryDirectory() as logs:
        for round_trip, lose_one_in, hidden in settings * options.turns:
            one = argparse.Namespace(
                links=options.links,
                round_trip=round_trip,
                lose_one_in=lose_one_in,
                congestion=options.congestion,
                lanes=options.lanes,
                dense=options.dense,
                own_congestion=options.own_congestion,
                hidden=hidden,
                iterations=options.iterations,
                workers=4,
                mechanism="joint",
                data="flights",
                dim=DIM,
                cache_rows=4000,
            )
            print(json.dumps(asdict(measure_pair(one, Path(logs)))), flush=True)


if __name__ == "__main__":
    main()
