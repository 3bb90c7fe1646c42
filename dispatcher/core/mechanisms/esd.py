"""ESD: expected transmission costs, assigned by HybridDis (ESD paper, Alg. 1 and 2)."""

from __future__ import annotations

import time
from typing import cast

import numpy as np
from numpy.typing import NDArray

from esd.dispatcher.core.decision_time import AffordableSteps, DecisionTime
from esd.dispatcher.core.hybrid import hybrid_dis
from esd.dispatcher.core.mechanisms.draws import content_order
from esd.dispatcher.core.mechanisms.protocol import Assignment, DispatchInput
from esd.dispatcher.solvers import Solution, Solver, open_solver
from esd.dispatcher.solvers.protocol import AnyCosts, Prices
from esd.services.domain.jobs import JobSpec
from esd.services.domain.mechanisms import EsdOptions
from esd.services.domain.workloads import scale_workloads

_FINER = 16  # units per link cost unit with an eviction term, since a link may cost 1 and its evictions a fraction
_FINER_LIMIT = 2**25  # with evictions at most doubling a cost, entries stay below 2^30
_WARM_WORKERS = 8  # largest number of workers for a warm start
_SHARE_STEPS = 1000  # steps between 0 and the largest alpha
_SAMPLE_STEP = 8  # prices come from every 8th sample: 0.5-2.3% above the optimum, where greedy is 4-10% above


class Esd:
    """Sends samples to the workers with the least expected cost: alpha's share exactly, the rest greedily."""

    lookahead = 0

    def __init__(self, job: JobSpec, *, priced: bool = False) -> None:
        """Reads the parameters of HybridDis from the job's `EsdOptions`.

        Args:
            job: `alpha` is the share of samples for Opt, or its maximum if `auto_alpha` adapts the share to the time
                (Herald §4.3); `criterion` ranks the samples; `solver` names the solver of Opt.
            priced: whether Heu chooses by cost + price of a place at the worker, instead of by cost as in the paper.
                The prices are the exact duals of a problem with every 8th sample, so that Heu foresees which workers
                fill up.

        Raises:
            InvalidArgument: the solver is unknown.
            FailedPrecondition: the solver needs a device that this machine does not have.
        """
        options = cast(EsdOptions, job.options)
        self._alpha = options.alpha
        self._share = AffordableShare(options.alpha) if options.auto_alpha else None
        self._criterion = options.criterion
        self._priced = priced
        self._solver = _WarmStart(open_solver(options.solver, job.workers))

    def decide(self, problem: DispatchInput, /) -> Assignment:
        """Builds the cost matrix (Alg. 1) and runs HybridDis (Alg. 2) on it, with samples ordered by their content."""
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
    """Returns Alg. 1's cost matrix, int32 [k, n], and the unit of its entries, as a multiple of the link costs' unit.

    If the job's cost model counts evictions, the costs include the evictions that a sample would cause.
    """
    costs = problem.engine.costs(problem.link_costs)
    if problem.eviction_costs is None:
        return costs, 1.0
    finer = _FINER if costs.max() < _FINER_LIMIT else 1  # a cheap eviction must not round to 0
    per_slot = np.rint(finer * problem.eviction_costs).astype(np.int32)
    return finer * costs + problem.engine.room_needed() * per_slot, 1 / finer


class AffordableShare:
    """Opt's share of the samples within the time limit: the largest share when there is enough time (Herald §4.3)."""

    def __init__(self, most: float) -> None:
        """Starts without measurements, with the largest share."""
        self._most = most
        self._steps = AffordableSteps()  # a step is a thousandth of the largest share; its unit is a sample

    def choose(self, time_limit: DecisionTime, samples: int) -> float:
        """Returns alpha for a batch of `samples` samples, a multiple of a thousandth of the largest share."""
        steps = self._steps.choose(time_limit, _SHARE_STEPS, self._most * samples / _SHARE_STEPS)
        return self._most * steps / _SHARE_STEPS

    def learn(self, exact_seconds: float, exact_samples: int, seconds: float) -> None:
        """Learns from a decision: seconds and samples of Opt, and seconds of HybridDis as a whole."""
        self._steps.learn(exact_seconds, exact_samples, seconds - exact_seconds)


class _WarmStart:
    """Starts each solve from the previous prices, which are nearly right because successive batches are alike.

    Prices change the time of a solve, never its result. With many workers, correcting nearly right prices takes longer
    than computing new ones: a warm start takes 0.7 to 0.9 of the time with up to 8 workers, and 0.7 to 1.4 with 16 to
    64.
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
