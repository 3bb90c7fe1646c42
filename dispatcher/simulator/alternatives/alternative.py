"""What an alternative is, another way to keep embeddings in step, and how it runs beside a planner that dispatches."""

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
        decision: who trains what; its plans and operations are those of on-demand synchronisation.
        lookahead: the batches that follow, as many as the alternative's `lookahead`.
    """

    batch: SampleBatch
    decision: Decision
    lookahead: tuple[SampleBatch, ...] = ()

    def ids_of(self, worker: int) -> NDArray[np.uint64]:
        """Returns all ids of one worker's samples, uint64 [N]."""
        return self.batch[np.flatnonzero(self.decision.assignment == worker)].ids


@dataclass(frozen=True, slots=True)
class Traffic:
    """What one iteration moves.

    Attributes:
        operations: rows between each worker and the parameter server.
        peer_rows: float64 [n], rows between workers: every link's share of an all-reduce.
        lookups: (row, worker) pairs trained.
        hits: how many of the lookups the worker's own cache served.
    """

    operations: Operations
    peer_rows: NDArray[np.float64]
    lookups: int
    hits: int

    @property
    def rows(self) -> NDArray[np.float64]:
        """Rows that each link moves, float64 [n]."""
        return self.operations.total + self.peer_rows


class Alternative(Protocol):
    """Follows a run iteration by iteration."""

    @property
    def lookahead(self) -> int:
        """How many batches beyond the present one it looks at."""
        ...

    def step(self, trained: Trained, /) -> Traffic:
        """Carries out one iteration and returns what it moves."""
        ...

    def figures(self) -> dict[str, float]:
        """Returns what else is worth knowing about the alternative so far, by name."""
        ...


@dataclass(frozen=True, slots=True)
class AlternativeTotals:
    """What a stream cost under an alternative.

    Attributes:
        iterations: how many were counted.
        samples: how many samples they train.
        operations: rows between workers and parameter server.
        peer_rows: float64 [n], rows between workers, by the link that they take up.
        cost_seconds: sum of T_j over all rows.
        makespan_seconds: sum over iterations of the slowest worker's link time and computation.
        lookups: (row, worker) pairs trained.
        hits: how many of the lookups the worker's own cache served.
        figures: what else the alternative tells, by name.
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
    """Dispatches a stream by the planner's mechanism and charges what the alternative moves.

    The mechanism sees the caches of on-demand synchronisation. Workloads are the job's.

    Args:
        planner: at iteration 0.
        batches: the stream, cut into global batches.
        alternative: at its start.
        sample_seconds: [n], what each worker computes per sample; nothing by default.
        warm_up: first iterations that are not counted; the alternative's own figures contain them.
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
