"""Ways to sum dense gradients where each worker has one network card: `python -m benchmarks.cards` (root).

Rows, plans, samples and dense gradients of a worker share its link, as on real machines. Services run as in a cluster,
each worker in a network namespace of its own, and the kernel holds the links to their speeds. Every way trains the same
samples in turn. Prints iterations per second, the bytes that the kernel counted at each card, and the figures of the
model.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from esd.run.links import parse_links
from testbed.cards import Machine, machines

_ESD = str(Path(sys.executable).with_name("esd"))
_DISPATCHER, _SERVER = 50051, 50052  # ports in a namespace of their own
_LONGEST_RUN = 1800.0  # seconds
_LONGEST_END = 20.0


@dataclass(frozen=True, slots=True)
class Measured:
    """One run.

    Attributes:
        dense: the way to sum dense gradients.
        iterations_per_second: by the dispatcher, from the first plan on.
        sent: bytes per iteration that each worker's card sent.
        received: bytes per iteration that each worker's card received.
        auc: of the run, progressive.
        loss: likewise.
    """

    dense: str
    iterations_per_second: float
    sent: list[int]
    received: list[int]
    auc: float
    loss: float


def measure(options: argparse.Namespace, dense: str, logs: Path) -> Measured:
    """Trains once, and returns the figures."""
    speeds = parse_links(options.links, options.workers)
    with machines(speeds) as (hub, workers), _services(hub, workers, speeds, options.cache_rows, logs):
        before = [machine.carried() for machine in workers]
        result = _train(hub, options, dense)
        after = [machine.carried() for machine in workers]
    carried = [
        [(last - first) // options.iterations for first, last in zip(*ends, strict=True)]
        for ends in zip(before, after, strict=True)
    ]
    sent, received = ([each[direction] for each in carried] for direction in (0, 1))
    return Measured(dense, result["iterations_per_second"], sent, received, result["auc"], result["loss"])


@contextmanager
def _services(
    hub: Machine, workers: Sequence[Machine], speeds: Sequence[float], cache_rows: int, logs: Path
) -> Iterator[None]:
    """Runs a parameter server and a dispatcher at the switch, and the workers; returns when all are ready."""
    with ExitStack() as stack:

        def serve(machine: Machine, name: str, *arguments: str) -> None:
            log = stack.enter_context((logs / f"{name}.log").open("w"))
            command = machine.command(_ESD, "serve", *arguments, "--metrics-port", "none")
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)  # noqa: S603 - ours
            stack.callback(_end, process)
            if '"ready"' not in process.stdout.readline():  # type: ignore[union-attr] # it is a pipe
                raise RuntimeError(f"{name} has not started: {(logs / f'{name}.log').read_text()}")

        serve(hub, "ps", "ps", "--listen", f"{hub.address}:{_SERVER}")
        serve(hub, "dispatcher", "dispatcher", "--listen", f"{hub.address}:{_DISPATCHER}")
        for machine, speed in zip(workers, speeds, strict=True):
            name = f"worker-{machine.address}"
            places = ("--listen", f"{machine.address}:0", "--dispatcher", f"{hub.address}:{_DISPATCHER}")
            link = ("--link", repr(speed), "--no-shape-link", "--cache-rows", str(cache_rows), "--peer-timeout", "300")
            serve(machine, name, "worker", "--name", name, *places, *link)
        yield


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.communicate(timeout=_LONGEST_END)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


def _train(hub: Machine, options: argparse.Namespace, dense: str) -> dict[str, Any]:
    services = ("--dispatcher", f"{hub.address}:{_DISPATCHER}", "--parameter-servers", f"{hub.address}:{_SERVER}")
    job = ("--data", options.data, "--model", "wdl", "--dim", str(options.dim), "--hidden", options.hidden)
    way = ("--mechanism", options.mechanism, "--dense", dense, "--checkpoint-every", "0")
    size = ("--workers", str(options.workers), "--batch", "64", "--iterations", str(options.iterations))
    command = hub.command(_ESD, "train", *services, *job, *way, *size, "--json")
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=_LONGEST_RUN)  # noqa: S603
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    """Measures every way in turn, and prints a line of JSON for each run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--links", default="100m,100m,10m,10m", help="speed of each worker's card, bits per second")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--dense", nargs="+", default=["all-reduce", "server", "low-rank:8"])
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
            for dense in options.dense:
                print(json.dumps(asdict(measure(options, dense, Path(logs)))), flush=True)


if __name__ == "__main__":
    main()
