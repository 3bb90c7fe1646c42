"""The services of a cluster on machines with one network card each (testbed/cards.py)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from testbed.cards import Machine

ESD = str(Path(sys.executable).with_name("esd"))
_DISPATCHER, _SERVER, _LANES = 50051, 50052, 50053  # ports in a namespace of their own
_PROXY, _LANES_NAME = "127.0.0.1:50054", "lanes"
_LONGEST_END = 20.0  # seconds


@dataclass(frozen=True, slots=True)
class WorkerLink:
    """A worker on a machine.

    Attributes:
        speed: of its link, bytes per second.
        cache_rows: of its cache.
        shaped: whether the worker holds its link to its speed; if not, its card does.
    """

    speed: float
    cache_rows: int
    shaped: bool = False


def dispatcher_at(hub: Machine) -> str:
    """Returns the address of the dispatcher."""
    return f"{hub.address}:{_DISPATCHER}"


def server_at(hub: Machine) -> str:
    """Returns the address of the parameter server."""
    return f"{hub.address}:{_SERVER}"


@contextmanager
def services(
    hub: Machine,
    workers: Sequence[Machine],
    links: Sequence[WorkerLink],
    logs: Path,
    decisions: Path | None = None,
    lanes: int = 0,
    congestion: str = "",
) -> Iterator[list[subprocess.Popen[str]]]:
    """Runs a parameter server and a dispatcher at the switch, and the workers.

    Args:
        hub: the machine at the switch.
        workers: machines of the workers.
        links: the link of each worker.
        logs: folder of the services' logs.
        decisions: file of the dispatcher's decision log; None: it keeps none.
        lanes: connections over which each one of a worker is carried; 0: it is not.
        congestion: the congestion control of the services' own connections; empty: the machines'.

    Yields:
        The processes of parameter server, dispatcher and workers in order, when all are ready.

    Raises:
        RuntimeError: one has not started; the message has its log.
    """
    chosen = ("--congestion", congestion) if congestion else ()
    with ExitStack() as stack:
        started: dict[str, subprocess.Popen[str]] = {}

        def serve(machine: Machine, name: str, *arguments: str) -> None:
            log = stack.enter_context((logs / f"{name}.log").open("w"))
            proxy = (f"grpc_proxy=http://{_PROXY}",) if lanes and machine is not hub else ()
            command = machine.command("env", *proxy, ESD, "serve", *arguments, "--metrics-port", "none", *chosen)
            started[name] = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)  # noqa: S603 - ours
            stack.callback(_end, started[name])

        serve(hub, "ps", "ps", "--listen", server_at(hub))
        kept = () if decisions is None else ("--decision-log", str(decisions))
        serve(hub, "dispatcher", "dispatcher", "--listen", dispatcher_at(hub), *kept)
        if lanes:
            _lay_lanes(hub, workers, lanes, serve)
        for machine, link in zip(workers, links, strict=True):
            name = f"worker-{machine.address}"
            places = ("--listen", f"{machine.address}:0", "--dispatcher", dispatcher_at(hub))
            shaping = "--shape-link" if link.shaped else "--no-shape-link"
            held = ("--link", repr(link.speed), shaping, "--cache-rows", str(link.cache_rows), "--peer-timeout", "300")
            serve(machine, name, "worker", "--name", name, *places, *held)
        for name, process in started.items():
            if '"ready"' not in process.stdout.readline():  # type: ignore[union-attr] # it is a pipe
                raise RuntimeError(f"{name} has not started: {(logs / f'{name}.log').read_text()}")
        yield [process for name, process in started.items() if not name.startswith(_LANES_NAME)]


def _lay_lanes(hub: Machine, workers: Sequence[Machine], lanes: int, serve: Callable[..., None]) -> None:
    """Serves the far end at the switch, and a near end on each machine."""
    far = f"{hub.address}:{_LANES}"
    serve(hub, _LANES_NAME, "lanes", "--listen", far, "--to", f"{dispatcher_at(hub)},{server_at(hub)}")
    for machine in workers:
        near = ("--listen", _PROXY, "--via", far, "--lanes", str(lanes))
        serve(machine, f"{_LANES_NAME}-{machine.address}", "lanes", *near)


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.communicate(timeout=_LONGEST_END)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
