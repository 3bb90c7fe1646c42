"""The objective of joint dispatch in plain Python, which `Engine.joint` minimises and reports.

It sums, for every row and the set of workers that would train it, the pulls, the owner's push, and the expected partial
gradients of a split row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from tests.unit.native.reference_engine import ReferenceEngine, Row

CLASSES = 16  # rows that were trained 15 times or more are alike
STEP = 1 / 64  # expected costs are rounded to it, as long as link costs are small


def reuse_probability(rows: Iterable[Row], trainings: int) -> float:
    """The probability that a row trained this often is trained again, from the history of earlier rows."""
    versions = [row.version for row in rows]
    if trainings < CLASSES - 1:
        uses = sum(version >= trainings for version in versions)
        reuses = sum(version > trainings for version in versions)
    else:
        uses = sum(max(0, version - CLASSES + 2) for version in versions)
        reuses = sum(max(0, version - CLASSES + 1) for version in versions)
    return (reuses + 0.5) / (uses + 1)


def objective(
    engine: ReferenceEngine,
    assignment: Sequence[int],
    link_costs: Sequence[int],
    next_trainers: Mapping[int, set[int]] | None = None,
) -> float:
    """The cost of the prepared batch's first samples under an assignment, with the next trainers of rows if known."""
    known = next_trainers or {}
    trainers = trainers_of(engine.batch[: len(assignment)], assignment)
    return sum(row_cost(engine, x, workers, link_costs, known.get(x)) for x, workers in trainers.items())


def trainers_of(samples: Sequence[Sequence[int]], assignment: Sequence[int]) -> dict[int, set[int]]:
    """Returns the workers that train each id, W_x."""
    trainers: dict[int, set[int]] = {}
    for sample, worker in zip(samples, assignment, strict=True):
        for x in sample:
            trainers.setdefault(x, set()).add(worker)
    return trainers


def row_cost(
    engine: ReferenceEngine, x: int, trainers: set[int], link_costs: Sequence[int], next_trainers: set[int] | None
) -> float:
    row = engine.rows[x]
    fresh = row.version == 0
    cost = sum(pull_cost(engine, x, trainers, link_costs[j], fresh=fresh) for j in trainers if not row.has_latest(j))
    if row.kind == "owned" and trainers - row.workers:
        cost += link_costs[min(row.workers)]
    if next_trainers is not None:
        cost += next_cost(engine, x, trainers, next_trainers, link_costs)
    elif len(trainers) > 1:
        reused = reuse_probability(engine.rows.values(), row.version + 1)
        cost += sum(partial_cost(engine, x, link_costs[j], reused) for j in trainers)
    return engine.size(x) * cost


def next_cost(
    engine: ReferenceEngine, x: int, trainers: set[int], next_trainers: set[int], link_costs: Sequence[int]
) -> float:
    """Operations of the row's next training, without pulls of a row that no worker has."""
    if len(trainers) > 1:
        return sum(partial_cost(engine, x, link_costs[j], 1.0) for j in trainers)
    (owner,) = trainers
    pushes = link_costs[owner] if next_trainers != trainers else 0
    return pushes - (
        pull_cost(engine, x, next_trainers, link_costs[owner], fresh=False) if owner in next_trainers else 0
    )


def pull_cost(engine: ReferenceEngine, x: int, trainers: set[int], link_cost: int, *, fresh: bool) -> float:
    """The cost of a pull of a row of size 1: of its values alone if other workers train it, too, or if it is new."""
    share = engine.value_share(x) if len(trainers) > 1 or fresh else 1.0
    return math.floor(share * link_cost / STEP + 0.5) * STEP


def partial_cost(engine: ReferenceEngine, x: int, link_cost: int, reused: float) -> float:
    """The expected cost of a worker's partial gradient of a split row of size 1, for a worker with this link cost."""
    return math.floor(reused * engine.gradient_share(x) * link_cost / STEP + 0.5) * STEP
