"""What P2F's queue has to do on a stream: updates that come in, priorities that change, rows that are flushed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.papers.flush_queues import NEVER, FlushQueue


@dataclass(frozen=True, slots=True)
class QueueWork:
    """What was done, and the entries that it touched.

    Attributes:
        updates: of rows' entries: enqueue, or adjustPriority.
        dequeues: rows flushed.
        rows: in the queue at the end.
        touched_by_updates: entries.
        touched_by_dequeues: entries.
    """

    updates: int
    dequeues: int
    rows: int
    touched_by_updates: int
    touched_by_dequeues: int


def queue_work(queue: FlushQueue, steps: Sequence[NDArray[np.int64]], *, lookahead: int, share: float) -> QueueWork:
    """Runs P2F (FRUGAL §3.3) over the rows of every step.

    Before step s, rows of step s + L that wait become due there (prefetch); what step s reads is flushed (the gate).
    After it, its rows wait for their next read within L steps, or for ever; then the flushers take a share of them
    in the order of the queue.

    Args:
        queue: empty.
        steps: distinct rows of each step.
        lookahead: L.
        share: rows that are flushed in the background, of those that a step trains.
    """
    waiting: set[int] = set()
    updates = dequeues = touched_by_updates = 0
    for now, rows in enumerate(steps):
        before = queue.touched
        if now + lookahead < len(steps):
            arriving = steps[now + lookahead]
            unknown = _next_reads(arriving, steps[now + 1 : now + lookahead], now) == NEVER
            for row in arriving[unknown].tolist():
                if row in waiting:
                    queue.put(row, now + lookahead)
                    updates += 1
        touched_by_updates += queue.touched - before
        while queue.front() <= now:
            waiting.discard(queue.take()[0])
            dequeues += 1
        before = queue.touched
        reads = _next_reads(rows, steps[now + 1 : now + 1 + lookahead], now)
        for row, read in zip(rows.tolist(), reads.tolist(), strict=True):
            queue.put(row, read)
            waiting.add(row)
        updates += len(rows)
        touched_by_updates += queue.touched - before
        for _ in range(min(len(queue), int(share * len(rows)))):
            waiting.discard(queue.take()[0])
            dequeues += 1
    return QueueWork(updates, dequeues, len(queue), touched_by_updates, queue.touched - touched_by_updates)


def _next_reads(rows: NDArray[np.int64], following: Sequence[NDArray[np.int64]], now: int) -> NDArray[np.int64]:
    """Returns the first of the steps after `now` that reads each row, int64 [rows]; NEVER if none does."""
    reads = np.full(len(rows), NEVER, np.int64)
    for distance in reversed(range(len(following))):
        reads[np.isin(rows, following[distance], assume_unique=True)] = now + 1 + distance
    return reads
