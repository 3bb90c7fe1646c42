"""ESD: expected transmission costs, assigned by HybridDis (ESD paper, Alg. 1 and 2)."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from esd.dispatcher.core.decision_time import AffordableSteps, DecisionTime
from esd.dispatcher.core.hybrid import hybrid_dis
from esd.dispatcher.core.mechanisms.draws import content_order
from esd.dispatcher.core.mechanisms.protocol import Assignment, DispatchInput
from esd.dispatcher.solvers import Solution, Solver, get_training_solver
from esd.dispatcher.solvers.protocol import AnyCosts, Prices
from esd.services.domain.jobs import JobSpec, scale_workloads

_FINER = 16
_FINER_LIMIT = 2**25  # with evictions at most doubling a cost, entries stay below 2^30
_WARM_WORKERS = 8  # a warm start is for no more than that
_SHARE_STEPS = 1000  # in which alpha follows the time
_SAMPLE_STEP = 8  # every 8th sample tells the prices: 0.5-2.3% above the optimum, where greedy is 4-10% above


class Esd:
    """Each sample goes where its expected cost is least, up to alpha's share exactly, the rest greedily."""

    lookahead = 0

    def __init__(self, job: JobSpec, *, priced: bool = False) -> None:
        """Takes the parameters of HybridDis.

        Args:
            job: `alpha` is the share of the samples that Opt assigns, or the most where `auto_alpha` adapts it to the
                time (Herald §4.3), `criterion` says which ones, and `solver` names the solver that does it.
            priced: Heu goes by cost + price of a place at the worker, instead of by cost as in the paper. The prices
                are the exact duals of every 8th sample, so that Heu foresees which workers fill up.

        Raises:
            InvalidArgument: the solver is unknown.
            FailedPrecondition: the solver needs a device that is not here.
        """
        self._alpha = job.alpha
        self._share = AffordableShare(job.alpha) if job.auto_alpha else None
        self._criterion = job.criterion
        self._priced = priced
        self._solver = _WarmStart(get_training_solver(job.solver))

    def decide(self, problem: DispatchInput, /) -> Assignment:
        """Builds the cost matrix (Alg. 1) and runs HybridDis (Alg. 2) on it, the samples in order of their content."""
        started = time.perf_counter()
        costs, unit = _expected_costs(problem)
        order = content_order(problem.batch)
        costs = costs[order]
        scored = time.perf_counter()
        prices = self._sample_prices(costs, problem.capacities) if self._priced else None
        alpha = self._alpha if self._share is None else self._share.choose(problem.time, len(costs))
        result = hybrid_dis(costs, problem.capacities, alpha, self._criterion, self._solver, prices=prices)
        if self._share is not None:
            self._share.learn(result.seconds, len(result.optimal_rows), time.perf_counter() - scored)
        workers = np.empty_like(result.assignment)
        workers[order] = result.assignment
        if not len(result.optimal_rows):
            return Assignment(workers, result.cost * unit, scored - started)
        return Assignment(workers, result.cost * unit, scored - started, result.solver, result.gap)

    def _sample_prices(self, costs: NDArray[np.int32], capacities: NDArray[np.int32]) -> Prices:
        sample = np.ascontiguousarray(costs[::_SAMPLE_STEP])
        shares = np.array(scale_workloads(tuple(capacities.tolist()), len(sample)), np.int32)
        return self._solver.solve(sample, shares).prices


def _expected_costs(problem: DispatchInput) -> tuple[NDArray[np.int32], float]:
    """Returns Alg. 1's cost matrix, int32 [k, n], and the unit of its entries in that of the link costs.

    Where the cost model has evictions, it contains those that a sample would cause.
    """
    costs = problem.engine.costs(problem.link_costs)
    if problem.eviction_costs is None:
        return costs, 1.0
    finer = _FINER if costs.max() < _FINER_LIMIT else 1  # a link may cost 1, and a share of it must not be lost
    per_slot = np.rint(finer * problem.eviction_costs).astype(np.int32)
    return finer * costs + problem.engine.room_needed() * per_slot, 1 / finer


class AffordableShare:
    """Opt's share of the samples as the time allows: all of it when there is enough (Herald §4.3)."""

    def __init__(self, most: float) -> None:
        """Starts without knowledge, with the largest share."""
        self._most = most
        self._steps = AffordableSteps()  # thousandths of the most; their units are samples

    def choose(self, time_limit: DecisionTime, samples: int) -> float:
        """Returns alpha for a batch of so many samples, in thousandths of the most."""
        steps = self._steps.choose(time_limit, _SHARE_STEPS, self._most * samples / _SHARE_STEPS)
        return self._most * steps / _SHARE_STEPS

    def learn(self, exact_seconds: float, exact_samples: int, seconds: float) -> None:
        """Takes in what a decision took: Opt, for how many samples, and the whole of HybridDis."""
        self._steps.learn(exact_seconds, exact_samples, seconds - exact_seconds)


class _WarmStart:
    """Starts each solve from the last one's prices: successive batches are alike, so they are nearly right.

    Prices change the time of a solve, never its result. With many workers nearly right prices take longer to mend than
    new ones take to make: a solve takes 0.7 to 0.9 of its time with up to 8 workers, and 0.7 to 1.4 with 16 to 64.
    """

    def __init__(self, solver: Solver) -> None:
        self._solver = solver
        self._prices: Prices | None = None

    @property
    def name(self) -> str:
        return self._solver.name

    def solve(self, costs: AnyCosts, capacities: NDArray[np.int32], prices: Prices | None = None) -> Solution:
        if prices is None and len(capacities) <= _WARM_WORKERS:
            prices = self._prices
        solution = self._solver.solve(costs, capacities, prices)
        self._prices = solution.prices
        return solution
