"""The interface of alternatives (simulated ways to synchronise embeddings), and their run along with a planner."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from esd.dispatcher.core.cost_model import Operations
from esd.dispatcher.core.decision import Decision
from esd.dispatcher.core.planner import Planner
from esd.dispatcher.simulator.simulate import with_lookahead
from esd.services.domain.batches import SampleBatch


@dataclass(frozen=True, slots=True)
class Trained:
    """One iteration that was dispatched.

    Attributes:
        batch: its samples.
        decision: the assignment; its plans and operations belong to on-demand synchronisation.
        lookahead: the following batches, up to the alternative's `lookahead`.
    """

    batch: SampleBatch
    decision: Decision
    lookahead: tuple[SampleBatch, ...] = ()

    def ids_of(self, worker: int) -> NDArray[np.uint64]:
        """Returns all ids of one worker's samples, uint64 [N]."""
        return self.batch[np.flatnonzero(self.decision.assignment == worker)].ids


@dataclass(frozen=True, slots=True)
class IterationTraffic:
    """The transfers of one iteration.

    Attributes:
        operations: rows between each worker and the parameter server.
        peer_rows: float64 [n], rows between workers: every link's share of an all-reduce.
        lookups: (row, worker) pairs trained.
        hits: lookups that the worker's own cache served.
    """

    operations: Operations
    peer_rows: NDArray[np.float64]
    lookups: int
    hits: int

    @property
    def rows(self) -> NDArray[np.float64]:
        """Rows moved over each link, float64 [n]."""
        return self.operations.total + self.peer_rows


class Alternative(Protocol):
    """Follows a run iteration by iteration."""

    @property
    def lookahead(self) -> int:
        """The number of batches after the present one that `step` looks at."""
        ...

    def step(self, trained: Trained, /) -> IterationTraffic:
        """Simulates one iteration and returns its transfers."""
        ...

    def figures(self) -> dict[str, float]:
        """Returns further figures of the alternative so far, by name."""
        ...


@dataclass(frozen=True, slots=True)
class AlternativeTotals:
    """The cost of a stream under an alternative.

    Attributes:
        iterations: number of counted iterations.
        samples: number of samples of these iterations.
        operations: rows between workers and parameter server.
        peer_rows: float64 [n], rows between workers, by link.
        cost_seconds: sum of T_j over all rows.
        makespan_seconds: sum over iterations of the slowest worker's link time and computation.
        lookups: (row, worker) pairs trained.
        hits: lookups that the worker's own cache served.
        figures: the alternative's further figures, by name.
    """

    iterations: int
    samples: int
    operations: Operations
    peer_rows: NDArray[np.float64]
    cost_seconds: float
    makespan_seconds: float
    lookups: int
    hits: int
    figures: dict[str, float]


def simulate_alternative(
    planner: Planner,
    batches: Iterable[SampleBatch],
    alternative: Alternative,
    *,
    sample_seconds: Sequence[float] | None = None,
    warm_up: int = 0,
) -> AlternativeTotals:
    """Dispatches a stream with the planner's mechanism, and counts the transfers of the alternative.

    The mechanism sees the caches of on-demand synchronisation. Workloads are the job's.

    Args:
        planner: a planner at iteration 0.
        batches: the stream, cut into global batches.
        alternative: the alternative, at its start.
        sample_seconds: [n], computing time of each worker per sample; 0 by default.
        warm_up: number of first iterations that do not count; the alternative's own figures include them.
    """
    workers = planner.job.workers
    computing = np.zeros(workers) if sample_seconds is None else np.asarray(sample_seconds, np.float64)
    operations, peer_rows = Operations.none(workers), np.zeros(workers)
    iterations = samples = lookups = hits = 0
    cost = makespan = 0.0
    for batch, later in with_lookahead(batches, max(planner.lookahead, alternative.lookahead)):
        decision = planner.plan(batch, later[: planner.lookahead])
        traffic = alternative.step(Trained(batch, decision, tuple(later[: alternative.lookahead])))
        if decision.iteration < warm_up:
            continue
        seconds = planner.cost_model.transfer_seconds * traffic.rows
        iterations += 1
        samples += len(batch)
        operations += traffic.operations
        peer_rows = peer_rows + traffic.peer_rows
        cost += float(seconds.sum())
        makespan += float((seconds + computing * decision.workloads).max())
        lookups += traffic.lookups
        hits += traffic.hits
    return AlternativeTotals(
        iterations, samples, operations, peer_rows, cost, makespan, lookups, hits, alternative.figures()
    )
