"""Long joint searches reach the optimum that a mixed-integer program proves (HiGHS), beyond brute force's reach."""

from __future__ import annotations

import random

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, milp

from tests.unit.native.reference_joint import partial_cost
from tests.unit.native.test_joint_search import int32, with_history


class Program:
    """Minimise costs @ variables, variables in [0, 1], the first of them whole, lower <= A @ variables."""

    def __init__(self) -> None:
        self.costs: list[float] = []
        self.whole: list[int] = []
        self._rows: list[tuple[dict[int, float], float, float]] = []

    def variable(self, cost: float = 0.0, *, whole: bool = False) -> int:
        self.costs.append(cost)
        self.whole.append(int(whole))
        return len(self.costs) - 1

    def constrain(self, coefficients: dict[int, float], lower: float, upper: float = np.inf) -> None:
        self._rows.append((coefficients, lower, upper))

    def minimum(self) -> float:
        matrix = np.zeros((len(self._rows), len(self.costs)))
        for r, (coefficients, _, _) in enumerate(self._rows):
            matrix[r, list(coefficients)] = list(coefficients.values())
        limits = LinearConstraint(matrix, [row[1] for row in self._rows], [row[2] for row in self._rows])
        result = milp(self.costs, integrality=self.whole, bounds=(0, 1), constraints=limits, options={"time_limit": 60})
        assert result.status == 0, result.message
        return float(result.fun)


def optimum(reference, capacities, links) -> float:
    """z[i][j]: sample i at worker j."""
    program, workers = Program(), range(len(capacities))
    z = [[program.variable(whole=True) for _ in workers] for _ in reference.batch]
    for places in z:
        program.constrain(dict.fromkeys(places, 1), 1, 1)
    for j, capacity in enumerate(capacities):
        program.constrain({places[j]: 1 for places in z}, capacity, capacity)
    for x in {x for sample in reference.batch for x in sample}:
        users = [places for sample, places in zip(reference.batch, z, strict=True) if x in sample]
        add_row(program, reference, x, users, links)
    return program.minimum()


def add_row(program, reference, x, users, links) -> None:
    """y[j]: worker j trains the row, since one of the samples that use it is there."""
    row, workers = reference.rows[x], range(len(links))
    y = [program.variable(0 if row.has_latest(j) else links[j]) for j in workers]
    for places in users:
        for j in workers:
            program.constrain({y[j]: 1, places[j]: -1}, 0)
    if row.kind == "owned":
        (owner,) = row.workers
        push = program.variable(links[owner])
        for j in set(workers) - {owner}:
            program.constrain({push: 1, y[j]: -1}, 0)
    if len(users) > 1:
        for j in workers:  # it trains the row, and not alone
            partial = program.variable(partial_cost(reference, x, links[j]))
            for h in set(workers) - {j}:
                program.constrain({partial: 1, y[j]: -1, y[h]: -1}, -1)


@pytest.mark.parametrize("seed", range(3))
def test_long_searches_reach_the_optimum(seed):
    engine, reference = with_history(random.Random(seed), 4, 60, 12, 4, 25)
    links, capacities = [1, 1, 10, 10], [3, 3, 3, 3]
    found = [engine.joint(int32(links), int32(capacities), draw, wide_rounds=500, narrow_rounds=500) for draw in (1, 2)]
    least = optimum(reference, capacities, links)
    assert min(cost for _, cost, _, _ in found) == pytest.approx(least, abs=1e-6)
    assert min(start for _, _, start, _ in found) > least + 1e-6, "the first round leaves nothing to find"
