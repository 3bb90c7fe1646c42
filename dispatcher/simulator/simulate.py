"""The simulator: plans a whole stream without network or tensors, and adds up its cost."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from esd.dispatcher.core.checkpoint_schedule import CheckpointSchedule
from esd.dispatcher.core.feedback import Feedback
from esd.dispatcher.core.planner import Planner
from esd.dispatcher.simulator.link_bytes import LinkBytes
from esd.dispatcher.simulator.totals import Tally, Totals
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import InvalidArgument


def simulate(
    planner: Planner,
    batches: Iterable[SampleBatch],
    *,
    sample_seconds: Sequence[float] | None = None,
    warm_up: int = 0,
    link: LinkBytes | None = None,
) -> Totals:
    """Plans every batch with a fresh planner, flushes, and returns the totals.

    The planner's feedback is every worker's modelled time, link time plus computation, `job.window` iterations later,
    as with a running dispatcher and workers that lag by the whole window. With `link` it has the time of plans and
    dense sums, too; costs and totals count rows alone. The modelled makespan serves as the clock for checkpoints.

    Args:
        planner: a planner at iteration 0.
        batches: the stream, cut into global batches.
        sample_seconds: [n], computing time of each worker per sample; 0 by default.
        warm_up: number of first iterations that do not count, including the flushes among them.
        link: counts all bytes on the links; None: only rows are counted.

    Memory grows with the stream by 8 bytes per iteration, for its decision time.
    """
    computing = np.zeros(planner.job.workers) if sample_seconds is None else np.asarray(sample_seconds, np.float64)
    pending: deque[Feedback] = deque()
    tally = Tally(planner.job.workers)
    makespan = 0.0
    job = planner.job
    size = job.checkpoint_bytes if job.takes_checkpoints else 0
    schedule = CheckpointSchedule(job.checkpoint_every, job.checkpoint_seconds, size)
    for iteration, (batch, lookahead_batches) in enumerate(with_lookahead(batches, planner.lookahead)):
        if len(pending) == planner.job.window:
            planner.observe(pending.popleft())
        if schedule.due(iteration, makespan):
            schedule.start(iteration, makespan)
            flushes, _ = planner.checkpoint()
            if iteration >= warm_up:
                tally.flush(flushes)
        schedule.add(batch.nbytes)
        decision = planner.plan(batch, lookahead_batches)
        seconds = decision.link_seconds + computing * decision.workloads
        if link is None:
            pending.append(Feedback(seconds, np.zeros_like(seconds)))
        else:
            pending.append(link.add(decision, seconds, counts=iteration >= warm_up))
        if iteration >= warm_up:
            tally.add(decision, seconds)
        makespan += float(seconds.max())
    tally.flush(planner.flush())
    return tally.totals()


def with_lookahead(batches: Iterable[SampleBatch], lookahead: int) -> Iterator[tuple[SampleBatch, list[SampleBatch]]]:
    """Yields every batch with the `lookahead` batches that follow it; fewer at the end of the stream."""
    read: deque[SampleBatch] = deque()
    for batch in batches:
        read.append(batch)
        if len(read) > lookahead:
            yield read.popleft(), list(read)
    while read:
        yield read.popleft(), list(read)


def trace_batches(trace: NDArray[np.uint64], batch_size: int) -> Iterator[SampleBatch]:
    """Cuts a trace of ids [N, F] into batches without dense features and labels; the last may be short.

    Raises:
        InvalidArgument: the trace is not a two-dimensional uint64 array.
    """
    if trace.ndim != 2 or trace.dtype != np.uint64:
        raise InvalidArgument(f"the trace is {trace.dtype} {trace.shape}, it must be uint64 [samples, fields]")
    for start in range(0, len(trace), batch_size):
        ids = np.ascontiguousarray(trace[start : start + batch_size])
        yield SampleBatch.of_fields(ids, np.empty((len(ids), 0), np.float32), np.zeros(len(ids), np.float32))
