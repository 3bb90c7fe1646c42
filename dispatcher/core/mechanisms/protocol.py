"""The interface of dispatch mechanisms, which assign the samples of a prepared batch to workers."""

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
    """The range of workloads in which a mechanism may depart from the capacities.

    Attributes:
        least: int32 [n], smallest number of samples of each worker; not above its capacity.
        most: int32 [n], largest number of samples of each worker; not below its capacity.
        sample_costs: float64 [n], computing time of a worker per sample, in the cost model's unit.
        fixed_costs: float64 [n], time of a worker that depends on no sample, of dense sums on its link, in this unit.
    """

    least: NDArray[np.int32]
    most: NDArray[np.int32]
    sample_costs: NDArray[np.float64]
    fixed_costs: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Sites:
    """The sites of a batch: a sample goes to a worker of its site only.

    Attributes:
        of_samples: int32 [k], numbered from 0.
        of_workers: int32 [n].
        of_lookahead: of the samples of each batch of the lookahead, as `of_samples`.
    """

    of_samples: NDArray[np.int32]
    of_workers: NDArray[np.int32]
    of_lookahead: tuple[NDArray[np.int32], ...] = ()


@dataclass(frozen=True, slots=True)
class DispatchInput:
    """A batch to assign, with all information that a mechanism may use.

    Attributes:
        engine: the state index, with this batch prepared. A mechanism must leave this batch prepared and change no row.
        batch: the samples.
        capacities: int32 [n], samples of each worker; they sum to k.
        iteration: t, which is part of the seed of random draws.
        link_costs: int32 [n], the present T_j in the cost model's unit.
        sizes: the sizes of a row and of a partial gradient on the wire.
        lookahead: the following batches, in order: the mechanism's `lookahead` of them, fewer at the end of a stream.
        time: the time limit of the decision, which also records its efforts.
        eviction_costs: float64 [n], in the unit of the link costs: the expected cost in evict pushes of taking a slot
            in each cache, or a unit of its room; None if the job's cost model leaves evictions out.
        sites: which samples which workers may take, for a mechanism that looks at whole batches; None: any.
        limits: the range around capacities[j] for the samples of worker j; None if capacities must be met.
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
    sites: Sites | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """The worker of each sample, with figures about the decision.

    Attributes:
        workers: int32 [k], the worker of each sample; worker j gets capacities[j] samples, or a number within the
            limits of the input.
        expected_cost: the mechanism's estimate in units of the integer link costs; 0 if it makes none.
        score_seconds: wall time spent on costs or affinities, before the assignment itself.
        solver: the solver that ran, "" for none.
        gap: the solver's certificate, its cost minus its dual bound: 0 proves its part optimal; None without a
            certificate.
    """

    workers: NDArray[np.int32]
    expected_cost: float = 0.0
    score_seconds: float = 0.0
    solver: str = ""
    gap: float | None = None


class Mechanism(Protocol):
    """Assigns samples to workers. A mechanism that a job can name is built from the job, whose options it reads.

    A mechanism is deterministic: the same inputs in the same order give the same assignments. With a deadline the
        recorded efforts of each decision are part of its input. A mechanism that improves with time stops at the
        deadline with its best assignment; the other mechanisms need a fraction of any sensible deadline.
    """

    @property
    def lookahead(self) -> int:
        """The number of batches after the present one that `decide` looks at."""
        ...

    def decide(self, problem: DispatchInput, /) -> Assignment:
        """Assigns every sample of the batch to a worker.

        A batch, identified by `iteration`, may be assigned several times under different capacities, of which one
        assignment is used.
        """
        ...
