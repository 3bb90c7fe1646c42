"""What a dispatch mechanism is: it assigns the samples of a prepared batch to workers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from esd.dispatcher.core.cost_model import RowSizes
from esd.dispatcher.core.decision_time import DecisionTime
from esd.native.engine import Engine
from esd.services.domain.batches import SampleBatch


@dataclass(frozen=True, slots=True)
class WorkloadLimits:
    """How far a mechanism may depart from the capacities it is given.

    Attributes:
        least: int32 [n], the fewest samples of each worker; not above its capacity.
        most: int32 [n], the most samples of each worker; not below its capacity.
        sample_costs: float64 [n], what a worker computes per sample, in the cost model's unit.
    """

    least: NDArray[np.int32]
    most: NDArray[np.int32]
    sample_costs: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class DispatchInput:
    """One batch to assign, and everything that a mechanism may know for it.

    Attributes:
        engine: the state index, with this batch prepared. A mechanism leaves it so, and changes no row.
        batch: its samples.
        capacities: int32 [n], samples of each worker; they sum to k.
        iteration: t, part of the seed of whatever is drawn at random.
        link_costs: int32 [n], the present T_j in the cost model's unit.
        sizes: what a row and a partial gradient take on the wire.
        lookahead: the batches that follow, in order; as many as the mechanism's `lookahead` asks for, fewer at the end
            of a stream.
        time: by when the decision is wanted, and what it used its time for.
        eviction_costs: float64 [n], in the unit of the link costs, what a slot that is taken in each cache, or a unit
            of its room, is expected to cost in evict pushes; None when the job's cost model leaves evictions out.
        limits: within which worker j may get another number of samples than capacities[j]; None: capacities are met.
    """

    engine: Engine
    batch: SampleBatch
    capacities: NDArray[np.int32]
    iteration: int
    link_costs: NDArray[np.int32]
    sizes: RowSizes
    lookahead: tuple[SampleBatch, ...] = ()
    time: DecisionTime = field(default_factory=DecisionTime)
    eviction_costs: NDArray[np.float64] | None = None
    limits: WorkloadLimits | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """Who trains what, and how that was decided.

    Attributes:
        workers: int32 [k], the worker of each sample; worker j gets capacities[j] samples, or what the limits of the
            input allow.
        expected_cost: the mechanism's estimate in units of the integer link costs; 0 when it makes none.
        score_seconds: wall time spent on costs or affinities, before the assignment itself.
        solver: the solver that ran, "" for none.
        gap: the solver's certificate, its cost less its dual bound: 0 proves its part optimal. None: it proves nothing.
    """

    workers: NDArray[np.int32]
    expected_cost: float = 0.0
    score_seconds: float = 0.0
    solver: str = ""
    gap: float | None = None


class Mechanism(Protocol):
    """Decides where samples train. Mechanisms that a job can name are built from the job, whose options they read.

    A mechanism is deterministic: the same inputs in the same order give the same assignments, the efforts of each
    decision among them where there is a deadline. One that can use time well stops at the deadline with the best it
    has; the others need a fraction of any sensible one.
    """

    @property
    def lookahead(self) -> int:
        """How many batches beyond the one to assign it looks at."""
        ...

    def decide(self, problem: DispatchInput, /) -> Assignment:
        """Assigns every sample of the batch to a worker.

        A batch, as `iteration` names it, may be assigned several times under other capacities before one counts.
        """
        ...
