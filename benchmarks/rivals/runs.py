"""The runs of the comparison: on a topology, by ESD or by a rival."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.rivals import ours
from benchmarks.rivals.plans import Plan
from benchmarks.rivals.processes import Bound, Cards, Line, Program, run
from benchmarks.rivals.topologies import Topology
from benchmarks.services_on_machines import WorkerLink, dispatcher_at, server_at, services
from esd.run.links import parse_links
from testbed.cards import CARD, Machine, machines
from testbed.processor_shares import ProcessorShare

_SERVER = 50053  # port of the plain server, in a namespace of its own
ALONE, DDP, PLAIN, LOCAL = "alone", "ddp", "server", "local-sgd"
RIVALS = (f"{LOCAL}:64", f"{LOCAL}:16", DDP, PLAIN)


@dataclass(frozen=True, slots=True)
class Place:
    """Where runs happen.

    Attributes:
        folder: has the task, and gets the logs.
        hub: the share of a processor of the machine at the switch.
        shares: of the other machines, in order.
        bound: where a run is ended.
    """

    folder: Path
    hub: ProcessorShare
    shares: Sequence[ProcessorShare]
    bound: Bound = field(default_factory=Bound)

    def run(self, name: str, programs: Sequence[Program], cards: Cards) -> list[Line]:
        """Runs programs, whose log has a name."""
        return run(programs, cards, self.bound, self.folder / f"{name}.log")


def run_alone(place: Place) -> list[Line]:
    """Trains on one machine."""
    return place.run(ALONE, [Program((ALONE, str(place.folder)), place.shares[0])], Cards())


def run_ours(place: Place, topology: Topology, plan: Plan) -> list[Line]:
    """Trains with ESD as planned; its lines have no figures of the model."""
    chosen = ours.chosen_of(plan.options)
    with ExitStack() as stack:
        hub, every = stack.enter_context(_machines(place, topology))
        used = [every[number] for number in plan.machines]
        links = [WorkerLink(speed, chosen.cache_rows or 1) for speed in chosen.bandwidths()]
        started = stack.enter_context(services(hub, used, links, place.folder))
        holders = [place.hub, place.hub, *(place.shares[number] for number in plan.machines)]
        for process, share in zip(started, holders, strict=True):
            share.hold(process.pid)
        words = ("ours", str(place.folder), json.dumps(plan.options), dispatcher_at(hub), server_at(hub))
        return place.run("esd", [Program(words, place.hub, hub)], Cards(hub, used))


def run_rival(place: Place, topology: Topology, rival: str) -> list[Line]:
    """Trains with a rival."""
    with _machines(place, topology) as (hub, workers):
        return place.run(rival.replace(":", "-"), _programs(place, rival, hub, workers), Cards(hub, workers))


def _machines(place: Place, topology: Topology) -> AbstractContextManager[tuple[Machine, list[Machine]]]:
    return machines(parse_links(topology.links, len(place.shares)), topology.cable)


def _programs(place: Place, rival: str, hub: Machine, workers: Sequence[Machine]) -> list[Program]:
    """Returns the programs of a rival; the first one tells how far it is."""
    name, _, every = rival.partition(":")
    folder, count = str(place.folder), str(len(workers))
    if name == PLAIN:
        where = (folder, count, f"{hub.address}:{_SERVER}")
        first = [Program(("server", "serve", *where), place.hub, hub)]
        words = [("server", "work", *where, str(rank)) for rank in range(len(workers))]
    else:
        first = []
        program = ("ddp",) if name == DDP else ("local_sgd", every)
        words = [(*program, folder, str(rank), count, workers[0].address, CARD) for rank in range(len(workers))]
    return [*first, *map(Program, words, place.shares, workers)]
