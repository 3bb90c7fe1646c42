"""Teams of the machines, and ways to sum dense gradients: which of them trains fastest, at the same global batch.

Every worker waits for the slowest link, through which the dense gradients go in every iteration, so a machine may slow
the others down by more than it trains. The trained model is the same for each team and each exact way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from esd.advice.sizing import Profile, dense_seconds, simulated, size_search
from esd.advice.steps import StepListener, ignore
from esd.dispatcher.simulator.sizing.search import Trial
from esd.run.options import BALANCED, RunOptions
from esd.services.domain.dense_sums import Every, LowRank, parse_dense_sum
from esd.services.domain.errors import ResourceExhausted
from esd.services.domain.footprint import Footprint
from esd.services.domain.jobs import equal_workloads
from esd.services.domain.sync import OnDemand, parse_sync

EXACT = ("all-reduce", "server")
RANKS = ("low-rank:8", "low-rank:4")  # another optimizer, shown for comparison
_BETTER = 0.99  # of the seconds with all machines and the way that is asked for, others must be


@dataclass(frozen=True, slots=True)
class Team:
    """Some of the machines.

    Attributes:
        machines: their numbers, from 0, ascending.
        chosen: the run on them.
        trial: its simulation with the way to sum that `chosen` has.
        seconds: of a sample by way to sum dense gradients, those that make another model included.
    """

    machines: tuple[int, ...]
    chosen: RunOptions
    trial: Trial
    seconds: dict[str, float]

    def as_json(self) -> dict[str, Any]:
        """Returns the team as JSON values."""
        return {"machines": list(self.machines), "links": self.chosen.links, "seconds": self.seconds}


@dataclass(frozen=True, slots=True)
class Teams:
    """The comparison of teams and ways.

    Attributes:
        all: the teams, all machines first.
        best: of the fastest team the run, with the fastest way that makes the same model.
        machines: the numbers of its machines.
        seconds: of a sample in this run, if rows move before and after the computation.
        least_seconds: the same if all rows moved while workers compute; a real run is expected between the two.
        alone_seconds: of a sample on one machine that has all rows in its own memory: its computation, since it needs
            neither links nor services.
    """

    all: tuple[Team, ...]
    best: RunOptions
    machines: tuple[int, ...]
    seconds: float
    least_seconds: float
    alone_seconds: float

    @property
    def pays(self) -> bool:
        """Whether the fastest team is faster than a machine that needs no services, however its rows move."""
        return self.seconds < _BETTER * self.alone_seconds

    @property
    def may_pay(self) -> bool:
        """Whether it is faster if all rows move while workers compute."""
        return self.least_seconds < _BETTER * self.alone_seconds

    @property
    def left_out(self) -> tuple[int, ...]:
        """The machines without which the others are faster."""
        return tuple(machine for machine in self.all[0].machines if machine not in self.machines)

    def as_json(self) -> dict[str, Any]:
        """Returns the comparison as JSON values."""
        return {
            "teams": [team.as_json() for team in self.all],
            "machines": list(self.machines),
            "seconds": self.seconds,
            "left_out": list(self.left_out),
            "least_seconds": self.least_seconds,
            "alone_seconds": self.alone_seconds,
            "pays": self.pays,
            "may_pay": self.may_pay,
        }


def compare_teams(
    chosen: RunOptions,
    profile: Profile,
    footprint: Footprint,
    trial: Trial,
    memory: float,
    listener: StepListener = ignore,
) -> Teams:
    """Simulates the fastest machines, as many as have one speed or more, each team with all ways to sum.

    Args:
        chosen: the run on all machines, with the recommended sizes, policy and way to synchronise.
        profile: of its samples.
        footprint: of its model.
        trial: its simulation.
        memory: of a worker, bytes.
        listener: gets a line before each simulation.
    """
    shown = list(dict.fromkeys((chosen.dense_sum, *EXACT, *RANKS)))
    inexact = isinstance(parse_dense_sum(chosen.dense_sum), Every | LowRank)
    allowed = [chosen.dense_sum] if inexact else [way for way in shown if way not in RANKS]
    everyone = tuple(range(chosen.workers))
    teams = [Team(everyone, chosen, trial, _by_way(chosen, footprint, trial, shown))]
    for machines in _subsets(chosen):
        smaller = _on(machines, chosen)
        if smaller is None:
            continue
        listener(f"simulation of {len(machines)} of {chosen.workers} machines")
        samples = max(smaller.worker_samples())
        rows = min(profile.room(profile.job(smaller)), footprint.cache_rows(memory, samples))
        try:
            tried = simulated(smaller, profile, footprint, samples, rows) if rows > 0 else None
        except ResourceExhausted:  # too few machines for the rows of an iteration
            tried = None
        if tried is not None:
            team = replace(smaller, cache_rows=rows)
            teams.append(Team(machines, team, tried, _by_way(team, footprint, tried, shown)))
    fastest, way = min(((team, way) for team in teams for way in allowed), key=lambda one: one[0].seconds[one[1]])
    if fastest.seconds[way] >= _BETTER * trial.seconds:
        fastest, way = teams[0], chosen.dense_sum
    best = replace(fastest.chosen, dense_sum=way)
    if fastest is not teams[0]:
        sized = size_search(best, profile, footprint, memory, listener).run([fastest.trial.batch])
        best = replace(best, cache_rows=sized.cache_rows)
    alone = footprint.sample_seconds + footprint.step_seconds / sum(chosen.worker_samples())
    seconds = fastest.seconds[way]
    least = seconds - (fastest.trial.seconds - fastest.trial.least_seconds)
    return Teams(tuple(teams), best, fastest.machines, seconds, least, alone)


def _by_way(chosen: RunOptions, footprint: Footprint, trial: Trial, ways: list[str]) -> dict[str, float]:
    """Returns the seconds of a sample by way to sum: one simulation is enough for all ways."""
    samples = sum(chosen.worker_samples())
    rest = trial.seconds - dense_seconds(chosen, footprint) / samples
    return {way: rest + dense_seconds(replace(chosen, dense_sum=way), footprint) / samples for way in ways}


def _subsets(chosen: RunOptions) -> list[tuple[int, ...]]:
    """Returns the fastest machines, as many as have a link of each speed or a faster one, and the fastest alone."""
    speeds = chosen.bandwidths()
    sets = [tuple(i for i, speed in enumerate(speeds) if speed >= least) for least in sorted(set(speeds))[1:]]
    return [*(each for each in sets if len(each) > 1), *([(speeds.index(max(speeds)),)] if len(speeds) > 1 else [])]


def _on(machines: tuple[int, ...], chosen: RunOptions) -> RunOptions | None:
    """Returns the run on some machines with the same global batch; None if their workloads cannot be balanced so."""
    samples, links = sum(chosen.worker_samples()), chosen.links.split(",")
    some = replace(
        chosen,
        workers=len(machines),
        links=",".join(links[machine] for machine in machines) if len(links) > 1 else chosen.links,
        cache_rows=None,
        sync=OnDemand.name if len(machines) == 1 and parse_sync(chosen.sync).exact else chosen.sync,
    )
    if samples % len(machines) == 0:
        return replace(some, batch=samples // len(machines))
    if chosen.workloads == BALANCED:
        return None
    shares = equal_workloads(samples, len(machines))
    return replace(some, batch=None, workloads=",".join(map(str, shares)))
