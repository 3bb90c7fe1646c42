"""Runs an alternative beside a planner, which decides who trains what."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dispatcher.core.operations import Operations
from dispatcher.core.planner import Planner
from dispatcher.simulator.alternatives.protocol import Alternative, Trained
from dispatcher.simulator.simulate import with_upcoming
from services.domain.batches import SampleBatch


@dataclass(frozen=True, slots=True)
class AlternativeTotals:
    """What a stream cost under an alternative.

    Attributes:
        iterations: iterations counted.
        samples: samples in them.
        operations: rows between workers and parameter server.
        peer_rows: float64 [n], rows between workers, by the link they take up.
        cost_seconds: sum of T_j over all rows.
        makespan_seconds: sum over iterations of the slowest worker's link time and computation.
        lookups: (row, worker) pairs trained.
        hits: of these, served from the worker's own cache.
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
    for batch, upcoming in with_upcoming(batches, max(planner.lookahead, alternative.lookahead)):
        decision = planner.plan(batch, upcoming[: planner.lookahead])
        foreseen = tuple(following.ids for following in upcoming[: alternative.lookahead])
        traffic = alternative.step(Trained(batch.ids, decision, foreseen))
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
