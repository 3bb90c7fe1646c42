"""What a dispatch mechanism is: it assigns the samples of a prepared batch to workers."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from esd_native.engine import Engine


@dataclass(frozen=True, slots=True)
class Limits:
    """How far a mechanism may depart from a turn's capacities.

    Attributes:
        least: int32 [n], samples of each worker at least; not above its capacity.
        most: int32 [n], at most; not below its capacity.
        sample_costs: float64 [n], what a worker computes per sample, in the cost model's unit.
    """

    least: NDArray[np.int32]
    most: NDArray[np.int32]
    sample_costs: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Turn:
    """One batch to assign, and what may be known for it.

    Attributes:
        engine: the state index, with this batch prepared. A mechanism leaves it so, and no row changed.
        ids: uint64 [k, F], the batch.
        capacities: int32 [n], samples of each worker; they sum to k.
        iteration: t, the seed of whatever is drawn at random.
        link_costs: int32 [n], T_j of now in the cost model's unit.
        upcoming: ids of the batches that follow, in order, each uint64 [k', F]; as many as the mechanism's
            `lookahead` asks for, fewer at the end of a stream.
        deadline: `time.perf_counter()` by which the decision is wanted; infinite without a budget.
        eviction_costs: float64 [n], in the unit of the link costs, what a slot that is taken in each cache, or a unit
            of its room, is expected to cost in evict pushes; None when the job's cost model leaves evictions out.
        limits: within which worker j may get another number of samples than capacities[j]; None: capacities are met.
    """

    engine: Engine
    ids: NDArray[np.uint64]
    capacities: NDArray[np.int32]
    iteration: int
    link_costs: NDArray[np.int32]
    upcoming: tuple[NDArray[np.uint64], ...] = ()
    deadline: float = math.inf
    eviction_costs: NDArray[np.float64] | None = None
    limits: Limits | None = None

    @property
    def seconds_left(self) -> float:
        """Time to the deadline; infinite without one, negative after it."""
        return self.deadline - time.perf_counter()


@dataclass(frozen=True, slots=True)
class Choice:
    """An assignment and how it came about.

    Attributes:
        assignment: int32 [k], the worker of each sample; worker j gets capacities[j] samples, or what the
            turn's limits allow.
        expected_cost: the mechanism's estimate in units of the integer link costs; 0 when it makes none.
        score_seconds: wall time spent on costs or affinities, before the assignment itself.
        solver: the solver that ran, "" for none.
        gap: the solver's certificate, its cost less its dual bound: 0 proves its part optimal. None: it proves nothing.
    """

    assignment: NDArray[np.int32]
    expected_cost: float = 0.0
    score_seconds: float = 0.0
    solver: str = ""
    gap: float | None = None


class Mechanism(Protocol):
    """Decides where samples train.

    Deterministic: the same turns in the same order give the same choices, as long as there is no deadline. A mechanism
    that can use time well stops at the deadline with the best it has; the others need a fraction of any sensible one.
    """

    @property
    def lookahead(self) -> int:
        """How many upcoming batches it looks at."""
        ...

    def decide(self, turn: Turn, /) -> Choice:
        """Assigns the batch."""
        ...
