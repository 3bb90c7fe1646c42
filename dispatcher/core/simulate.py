"""The simulator: plans a whole stream without network or tensors, and adds up what it would cost."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dispatcher.core.feedback import Feedback
from dispatcher.core.operations import Operations, flush_pushes
from dispatcher.core.planner import Planner
from services.domain.batches import SampleBatch
from services.domain.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class Totals:
    """What a stream cost. The flushes at checkpoints and at its end are counted beside the operations, not among them.

    Attributes:
        iterations: planned iterations.
        samples: samples in them.
        operations: rows moved, per worker and kind.
        moved_bytes: the same in bytes.
        flush_push: int64 [n], rows pushed for checkpoints and at the end of the stream.
        cost_seconds: sum of T_j over all operations (ESD eq. 4).
        makespan_seconds: sum over iterations of the slowest worker's link time and computation.
        workloads: float64 [n], mean samples of each worker per iteration.
        expected_cost_seconds: sum of the mechanism's own estimates, 0 when it makes none.
        lookups: (row, worker) pairs trained.
        hits: of these, with the latest version in the worker's cache.
        decision_median_seconds: of one decision, batch to plans.
        decision_p99_seconds: the 99th percentile of the same.
    """

    iterations: int
    samples: int
    operations: Operations
    moved_bytes: Operations
    flush_push: NDArray[np.int64]
    cost_seconds: float
    makespan_seconds: float
    workloads: NDArray[np.float64]
    expected_cost_seconds: float
    lookups: int
    hits: int
    decision_median_seconds: float
    decision_p99_seconds: float

    @property
    def hit_ratio(self) -> float:
        """Hits per lookup, 0 for an empty stream."""
        return self.hits / self.lookups if self.lookups else 0.0


def simulate(
    planner: Planner, batches: Iterable[SampleBatch], *, sample_seconds: Sequence[float] | None = None
) -> Totals:
    """Plans every batch with a fresh planner, flushes, and returns the totals.

    Every worker's modelled time, link time plus computation, is the planner's feedback, `job.window` iterations
    later, as in a running dispatcher whose workers are as far behind as they may be.

    Args:
        planner: at iteration 0.
        batches: the stream, cut into global batches.
        sample_seconds: [n], what each worker computes per sample; nothing by default.

    Memory does not grow with the stream but for 8 bytes per iteration (its decision time).
    """
    computing = np.zeros(planner.job.workers) if sample_seconds is None else np.asarray(sample_seconds, np.float64)
    pending: deque[Feedback] = deque()
    operations = moved_bytes = Operations.none(planner.job.workers)
    workloads = np.zeros(planner.job.workers)
    samples = lookups = hits = 0
    cost = makespan = expected = 0.0
    decision_seconds = array("d")
    flushed = np.zeros(planner.job.workers, np.int64)
    every = planner.job.checkpoint_every
    for batch, upcoming in with_upcoming(batches, planner.lookahead):
        if len(pending) == planner.job.window:
            planner.observe(pending.popleft())
        if every and decision_seconds and len(decision_seconds) % every == 0:
            flushed += flush_pushes(planner.checkpoint()[0])
        decision = planner.plan(batch, upcoming)
        seconds = decision.link_seconds + computing * decision.workloads
        pending.append(Feedback(seconds, np.zeros_like(seconds)))
        samples += len(batch)
        workloads += decision.workloads
        operations += decision.operations
        moved_bytes += decision.moved_bytes
        cost += decision.cost_seconds
        makespan += float(seconds.max())
        expected += decision.expected_cost_seconds
        lookups += decision.lookups
        hits += decision.hits
        decision_seconds.append(decision.decision_seconds)
    median, p99 = np.quantile(decision_seconds, [0.5, 0.99]) if decision_seconds else (0.0, 0.0)
    return Totals(
        iterations=len(decision_seconds),
        samples=samples,
        operations=operations,
        moved_bytes=moved_bytes,
        flush_push=flushed + flush_pushes(planner.flush()),
        cost_seconds=cost,
        makespan_seconds=makespan,
        workloads=workloads / max(1, len(decision_seconds)),
        expected_cost_seconds=expected,
        lookups=lookups,
        hits=hits,
        decision_median_seconds=float(median),
        decision_p99_seconds=float(p99),
    )


def with_upcoming(batches: Iterable[SampleBatch], lookahead: int) -> Iterator[tuple[SampleBatch, list[SampleBatch]]]:
    """Every batch with the `lookahead` batches that follow it; fewer at the end."""
    window: deque[SampleBatch] = deque()
    for batch in batches:
        window.append(batch)
        if len(window) > lookahead:
            yield window.popleft(), list(window)
    while window:
        yield window.popleft(), list(window)


def trace_batches(trace: NDArray[np.uint64], batch_size: int) -> Iterator[SampleBatch]:
    """Cuts a trace of ids [N, F] into batches without dense features and labels; the last may be short.

    Raises:
        InvalidArgument: the trace has another rank or dtype.
    """
    if trace.ndim != 2 or trace.dtype != np.uint64:
        raise InvalidArgument(f"the trace is {trace.dtype} {trace.shape}, it must be uint64 [samples, fields]")
    for start in range(0, len(trace), batch_size):
        ids = np.ascontiguousarray(trace[start : start + batch_size])
        yield SampleBatch(ids, np.empty((len(ids), 0), np.float32), np.zeros(len(ids), np.float32))
