"""Brute force: the best assignment of one batch by trying all of them (Herald App. C), for tiny batches."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product

import numpy as np
from numpy.typing import NDArray

from esd.dispatcher.core.mechanisms.protocol import Assignment, DispatchInput
from esd.native.engine import CacheTooSmall
from esd.services.domain.errors import InvalidArgument

_MOST_ASSIGNMENTS = 50_000


class BruteForce:
    """The oracle for all other mechanisms: the assignment whose plan costs least in this iteration, evictions included.

    It ignores the costs of later iterations. Of equally cheap assignments the first in lexicographic order
    wins. An assignment that some cache is too small for is taken only if there is no other.
    """

    lookahead = 0

    def decide(self, problem: DispatchInput, /) -> Assignment:
        """Commits every assignment to the engine and takes it back.

        Raises:
            InvalidArgument: there are more than 50,000 assignments.
        """
        count = _count(problem)
        if count > _MOST_ASSIGNMENTS:
            raise InvalidArgument(
                f"brute-force would try {count:.3g} assignments of {len(problem.batch)} samples to "
                f"{len(problem.capacities)} workers, the limit is {_MOST_ASSIGNMENTS}: make the batch smaller"
            )
        before = problem.engine.savepoint()
        best, least = next(_assignments(problem)), math.inf
        for assignment in _assignments(problem):
            cost = _realised_cost(problem, assignment)
            problem.engine.roll_back(before)
            problem.engine.prepare(*problem.batch.id_columns)
            if cost < least:
                best, least = assignment, cost
        return Assignment(best, expected_cost=least)


def _realised_cost(problem: DispatchInput, assignment: NDArray[np.int32]) -> float:
    """Link costs of the operations that the assignment would cause; infinite if it does not fit the caches."""
    try:
        plans = problem.engine.commit(assignment)
    except CacheTooSmall:
        return math.inf
    moved = problem.sizes.moved_bytes(plans).total
    return float((problem.link_costs * moved).sum() / problem.sizes.unit_bytes)


def _count(problem: DispatchInput) -> int:
    """Returns the number of assignments: k! / (m_0! m_1! ...), and their product over sites."""
    count = 1
    for _, capacities in _parts(problem):
        samples = 0
        for capacity in capacities.tolist():
            samples += capacity
            count *= math.comb(samples, capacity)
    return count


def _parts(problem: DispatchInput) -> list[tuple[NDArray[np.int64], NDArray[np.int32]]]:
    """Returns the samples of each site, with the capacities of its workers, 0 elsewhere; without sites there is one."""
    sites = problem.sites
    if sites is None:
        return [(np.arange(len(problem.batch)), problem.capacities)]
    return [
        (np.flatnonzero(sites.of_samples == site), np.where(sites.of_workers == site, problem.capacities, 0))
        for site in np.unique(sites.of_samples)
    ]


def _assignments(problem: DispatchInput) -> Iterator[NDArray[np.int32]]:
    """Yields all assignments, int32 [k] each: every combination of the arrangements at the sites."""
    samples, capacities = zip(*_parts(problem), strict=True)
    for chosen in product(*map(_arrangements, capacities)):
        workers = np.empty(len(problem.batch), np.int32)
        for rows, of_site in zip(samples, chosen, strict=True):
            workers[rows] = of_site
        yield workers


def _arrangements(capacities: NDArray[np.int32]) -> Iterator[NDArray[np.int32]]:
    """Yields all distinct assignments, int32 [k] each, in lexicographic order (next permutation of a multiset)."""
    workers = np.repeat(np.arange(len(capacities), dtype=np.int32), capacities)
    while True:
        yield workers.copy()
        rises = np.flatnonzero(workers[:-1] < workers[1:])
        if not len(rises):
            return
        pivot = int(rises[-1])
        successor = int(np.flatnonzero(workers > workers[pivot])[-1])
        workers[pivot], workers[successor] = workers[successor], workers[pivot]
        workers[pivot + 1 :] = workers[:pivot:-1].copy()
