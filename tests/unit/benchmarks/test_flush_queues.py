"""The engine's queue and the heaps for comparison flush the same rows, for any number of threads."""

from __future__ import annotations

import numpy as np

from benchmarks.papers.flush_queues import QUEUES, queue_times


def waiting_and_flushed(steps: list[np.ndarray], lookahead: int, share: float) -> tuple[int, int]:
    """One worker's updates and dequeues, row by row: a step reads the rows that it trains."""
    waiting: dict[int, float] = {}
    updates = flushed = 0

    def next_read(row: int, first: int, last: int) -> float:
        return next((s for s in range(first, min(last + 1, len(steps))) if row in steps[s]), np.inf)

    for now, rows in enumerate(steps):
        for row in list(waiting):
            read = next_read(row, now, now + lookahead)
            updates += read != waiting[row]
            waiting[row] = read
        due = [row for row, read in waiting.items() if read <= now]
        for row in due:
            del waiting[row]
        waiting |= {row: next_read(row, now + 1, now + lookahead) for row in rows.tolist()}
        updates += len(rows)
        first = sorted(waiting, key=waiting.__getitem__)[: int(share * len(rows))]
        for row in first:
            del waiting[row]
        flushed += len(due) + len(first)
    return updates, flushed


def test_every_queue_flushes_what_is_due_and_as_much_more_as_it_may() -> None:
    """The programme itself fails when a row is lost, flushed twice, or waits when its step reads it."""
    rng = np.random.default_rng(4)
    steps = [np.unique((400 * rng.random(150) ** 2).astype(np.uint32)) for _ in range(30)]
    updates, flushed = waiting_and_flushed(steps, 10, 0.0)
    alone = queue_times(steps, [1], workers=1, lookahead=10, share=0.0, rounds=1)
    assert {(t.updates, t.dequeues) for t in alone} == {(updates, flushed)}
    _, flushed = waiting_and_flushed(steps, 10, 0.5)
    assert {t.dequeues for t in queue_times(steps, [1], workers=1, lookahead=10, share=0.5, rounds=1)} == {flushed}
    threads = queue_times(steps, [1, 2, 5], workers=8, share=0.8, rounds=2)
    assert [(t.queue, t.threads) for t in threads] == [(queue, n) for n in (1, 2, 5) for queue in QUEUES]
    assert len({t.dequeues for t in threads if t.queue != "heap"}) == 1
