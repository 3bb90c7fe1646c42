"""Brute force: the best assignment of one batch by trying all of them (Herald App. C), for tiny batches."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dispatcher.core.mechanisms.protocol import Choice, Turn
from esd_native.engine import CacheTooSmall
from services.domain.errors import InvalidArgument

_MOST_ASSIGNMENTS = 50_000


class BruteForce:
    """The oracle for all other mechanisms: the assignment whose plan costs least, evictions included.

    Least in this iteration: what it leaves to the next ones is not weighed. Of equally cheap assignments the first in
    lexicographic order wins. One that some cache is too small for is taken only if there is no other.
    """

    lookahead = 0

    def decide(self, turn: Turn, /) -> Choice:
        """Commits every assignment to the engine and takes it back.

        Raises:
            InvalidArgument: there are more than 50,000 assignments.
        """
        count = _count(turn.capacities)
        if count > _MOST_ASSIGNMENTS:
            raise InvalidArgument(
                f"brute-force would try {count:.3g} assignments of {len(turn.ids)} samples to {len(turn.capacities)}"
                f" workers, the limit is {_MOST_ASSIGNMENTS}: make the batch smaller"
            )
        before = turn.engine.snapshot()
        ids = np.ascontiguousarray(turn.ids)
        best, least = next(_assignments(turn.capacities)), math.inf
        for assignment in _assignments(turn.capacities):
            cost = _realised_cost(turn, assignment)
            turn.engine.restore(before)
            turn.engine.prepare(ids)
            if cost < least:
                best, least = assignment, cost
        return Choice(best, expected_cost=least)


def _realised_cost(turn: Turn, assignment: NDArray[np.int32]) -> float:
    """Link costs of the operations that the assignment would cause; infinite if it does not fit the caches."""
    try:
        plans = turn.engine.commit(assignment)
    except CacheTooSmall:
        return math.inf
    return float((turn.link_costs * plans.sizes).sum())


def _count(capacities: NDArray[np.int32]) -> int:
    """How many there are: k! / (m_0! m_1! ...)."""
    count, placed = 1, 0
    for capacity in capacities.tolist():
        placed += capacity
        count *= math.comb(placed, capacity)
    return count


def _assignments(capacities: NDArray[np.int32]) -> Iterator[NDArray[np.int32]]:
    """All distinct arrangements of the workers' places, in lexicographic order (next permutation of a multiset)."""
    places = np.repeat(np.arange(len(capacities), dtype=np.int32), capacities)
    while True:
        yield places.copy()
        rises = np.flatnonzero(places[:-1] < places[1:])
        if not len(rises):
            return
        pivot = int(rises[-1])
        successor = int(np.flatnonzero(places > places[pivot])[-1])
        places[pivot], places[successor] = places[successor], places[pivot]
        places[pivot + 1 :] = places[:pivot:-1].copy()
