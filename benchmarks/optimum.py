"""How near the joint search comes to the optimum of one iteration: `python -m benchmarks.optimum`.

A mixed-integer program states the objective of `Engine.joint` for a batch in the middle of a stream, and HiGHS (in
scipy) solves it. Beyond a hundred samples or so that takes too long.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence, Set
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from benchmarks.dispatch.cases import read_ids
from esd.native.engine import Engine

INSTANCES = (("flights", 4, 16), ("synthetic:criteo", 4, 16), ("flights", 8, 16))  # data set, n, m
_ITERATIONS = 30  # before the batch in question
_SEEDS = range(8)
_LONG: dict[str, Any] = {"wide_rounds": 2_000, "narrow_rounds": 20_000}
_LINK_COSTS = (1, 10)  # of the first half of the workers and of the others
_CLASSES = 16  # rows that were trained 15 times or more are alike
_COST_STEP = 1 / 64  # expected costs are rounded to it


@dataclass(frozen=True, slots=True)
class Result:
    """One instance; costs are in transfers over a fast link.

    Attributes:
        data: the stream.
        workers: n.
        samples_per_worker: m.
        start: cost of the first round, which ignores that samples share rows.
        search: cost of the search of `joint`, mean over eight seeds.
        long_search: cost of a search with 22,000 rounds, the best of the seeds.
        optimum: cost of the program's solution; the best bound if it was not solved in time.
        proven: whether `optimum` is proven.
        program_seconds: wall time of the program.
        search_ms: wall time of the search of `joint`.
    """

    data: str
    workers: int
    samples_per_worker: int
    start: float
    search: float
    long_search: float
    optimum: float
    proven: bool
    program_seconds: float
    search_ms: float


class Rows:
    """The holders of each row's latest value, for caches of unlimited size, and how often rows are used again."""

    def __init__(self) -> None:
        self.trainers: defaultdict[int, frozenset[int]] = defaultdict(frozenset)  # of the last iteration that used it
        self.versions: defaultdict[int, int] = defaultdict(int)

    def train(self, ids: NDArray[np.uint64], assignment: NDArray[np.int32]) -> None:
        """Records the workers that have trained the samples of a batch, ids [k, F]."""
        trainers = defaultdict(set)
        for sample, worker in zip(ids.tolist(), assignment.tolist(), strict=True):
            for row in sample:
                trainers[row].add(worker)
        for row, workers in trainers.items():
            self.trainers[row] = frozenset(workers)
            self.versions[row] += 1

    def latest(self, row: int) -> Set[int]:
        """Returns the workers that need no pull: the worker that trained the row last, unless several did."""
        trainers = self.trainers[row]
        return trainers if len(trainers) == 1 else frozenset()

    def owner(self, row: int) -> int | None:
        """Returns the worker that has to push if another one trains the row."""
        return next(iter(self.latest(row)), None)

    def partial_cost(self, row: int, link: int) -> float:
        """Returns the expected cost of a worker's partial gradient of a split row, for a worker with this link cost."""
        again = self.reuse_probability(self.versions[row] + 1)
        return math.floor(again * link / _COST_STEP + 0.5) * _COST_STEP

    def reuse_probability(self, trainings: int) -> float:
        """Returns how likely a row of this many trainings is trained again, as `native/engine/joint/reuse.h` has it."""
        beyond = [max(0, version - _CLASSES + 2) for version in self.versions.values()]
        if trainings >= _CLASSES - 1:
            uses, reuses = sum(beyond), sum(max(0, each - 1) for each in beyond)
        else:
            uses = sum(version >= trainings for version in self.versions.values())
            reuses = sum(version > trainings for version in self.versions.values())
        return (reuses + 0.5) / (uses + 1)


class RowStates(Protocol):
    """The state of rows that the program needs."""

    def latest(self, row: int, /) -> Set[int]:
        """Returns the workers that need no pull."""

    def owner(self, row: int, /) -> int | None:
        """Returns the worker that has to push if another one trains the row."""

    def partial_cost(self, row: int, link: int, /) -> float:
        """Returns the expected cost of a worker's partial gradient of a split row, for a worker with this link cost."""


class Program:
    """Minimises a constant and the sum of costs x variables, the variables between 0 and 1."""

    def __init__(self) -> None:
        self.constant = 0.0
        self._costs: list[float] = []
        self._whole: list[bool] = []
        self._entries: list[tuple[int, int, float]] = []  # constraint, variable, coefficient
        self._least: list[float] = []
        self._most: list[float] = []

    def variable(self, cost: float, *, whole: bool = False) -> int:
        """Adds a variable, and returns its number."""
        self._costs.append(cost)
        self._whole.append(whole)
        return len(self._costs) - 1

    def constrain(self, plus: Sequence[int], minus: Sequence[int], least: float, most: float = math.inf) -> None:
        """Keeps the sum of some variables, less the sum of others, between two limits."""
        number = len(self._least)
        self._entries += [(number, variable, 1.0) for variable in plus]
        self._entries += [(number, variable, -1.0) for variable in minus]
        self._least.append(least)
        self._most.append(most)

    def minimum(self, seconds: float) -> tuple[float, bool]:
        """Returns the least cost, and whether it is proven; otherwise a bound that the least cost is not below."""
        constraints, variables, coefficients = zip(*self._entries, strict=True)
        matrix = csr_array((coefficients, (constraints, variables)), shape=(len(self._least), len(self._costs)))
        result = milp(
            self._costs,
            integrality=self._whole,
            bounds=Bounds(0, 1),
            constraints=LinearConstraint(matrix, self._least, self._most),
            options={"time_limit": seconds},
        )
        proven = result.status == 0
        return self.constant + float(result.fun if proven else result.mip_dual_bound), proven


def program_of(
    samples: Sequence[Sequence[int]], rows: RowStates, links: Sequence[int], capacities: Sequence[int]
) -> Program:
    """States the program of one batch, ids [k, F], for workers with these link costs and capacities, both [n]."""
    program = Program()
    at = [[program.variable(0, whole=True) for _ in links] for _ in samples]
    for places in at:
        program.constrain(places, [], 1, 1)
    for capacity, taken in zip(capacities, zip(*at, strict=True), strict=True):
        program.constrain(taken, [], capacity, capacity)
    users: defaultdict[int, list[list[int]]] = defaultdict(list)
    for sample, places in zip(samples, at, strict=True):
        for row in set(sample):
            users[row].append(places)
    for row, its_users in users.items():
        trainers = _add_row(program, rows, row, its_users, links)
        program.constrain(trainers, [], -(-len(its_users) // max(capacities)))  # implied; a tighter relaxation
    return program


def _add_row(program: Program, rows: RowStates, row: int, users: list[list[int]], links: Sequence[int]) -> list[int]:
    """Adds variables and costs of a row that some samples use.

    Returns the variables that are 1 where a worker trains the row.

    A worker trains the row if one of the samples is there, and alone if all of them are. It pulls the row if its copy
    is not the latest. An owner pushes unless it trains alone. A worker that does not train alone is expected to push a
    partial gradient later.
    """
    latest, owner = rows.latest(row), rows.owner(row)
    trainers = []
    for worker, link in enumerate(links):
        later = rows.partial_cost(row, link)
        trains = program.variable(later + (0 if worker in latest else link))
        alone = program.variable(-later - (link if worker == owner else 0))
        for places in users:
            program.constrain([trains], [places[worker]], 0)
            program.constrain([places[worker]], [alone], 0)
        trainers.append(trains)
    if owner is not None:
        program.constant += links[owner]
    return trainers


def measure(data: str, workers: int, samples_per_worker: int, seconds: float) -> Result:
    """Makes one instance: the batch after 30 iterations of joint dispatch."""
    size = workers * samples_per_worker
    ids = read_ids(data, size * (_ITERATIONS + 1))
    links = np.repeat(np.array(_LINK_COSTS, np.int32), [workers - workers // 2, workers // 2])
    capacities = np.full(workers, samples_per_worker, np.int32)
    engine, rows = Engine([len(np.unique(ids))] * workers, "emark"), Rows()
    *before, batch = np.split(ids, _ITERATIONS + 1)
    for iteration, earlier in enumerate(before):
        engine.prepare(np.ascontiguousarray(earlier))
        assignment = engine.joint(links, capacities, iteration)[0]
        engine.commit(assignment)
        rows.train(earlier, assignment)

    engine.prepare(np.ascontiguousarray(batch))
    started = time.thread_time()
    usual = [engine.joint(links, capacities, seed) for seed in _SEEDS]
    search_ms = 1e3 * (time.thread_time() - started) / len(usual)
    long = [engine.joint(links, capacities, seed, **_LONG) for seed in _SEEDS]
    started = time.perf_counter()
    optimum, proven = program_of(batch.tolist(), rows, links.tolist(), capacities.tolist()).minimum(seconds)
    return Result(
        data=data,
        workers=workers,
        samples_per_worker=samples_per_worker,
        start=usual[0][2],
        search=sum(cost for _, cost, _, _ in usual) / len(usual),
        long_search=min(cost for _, cost, _, _ in long),
        optimum=optimum,
        proven=proven,
        program_seconds=time.perf_counter() - started,
        search_ms=search_ms,
    )


def table(results: Sequence[Result]) -> Iterator[str]:
    """Yields the lines of a Markdown table."""
    yield "| instance | first round | search | long search | optimum | program, s |"
    yield "|---|---|---|---|---|---|"
    for each in results:
        name = f"{each.data}, {each.workers} x {each.samples_per_worker}"
        found = (
            f"{cost:.1f} (+{abs(100 * (cost / each.optimum - 1)):.2f}%)"
            for cost in (each.start, each.search, each.long_search)
        )
        optimum = f"{each.optimum:.1f}" if each.proven else f"at least {each.optimum:.1f}"
        yield f"| {name} | {' | '.join(found)} | {optimum} | {each.program_seconds:.0f} |"


def main() -> None:
    """Prints a table, or the results as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="limit of each program (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    results = [measure(*instance, arguments.seconds) for instance in INSTANCES]
    print(json.dumps([asdict(each) for each in results]) if arguments.json else "\n".join(table(results)))


if __name__ == "__main__":
    main()
