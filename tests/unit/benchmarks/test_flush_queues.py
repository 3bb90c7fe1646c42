"""FRUGAL's queue and the heap do the same, and touch what their structure says."""

import random

import numpy as np
import pytest

from benchmarks.papers.flush_queues import NEVER, FlushQueue, TreeHeap, TwoLevelQueue
from benchmarks.papers.flushing_work import queue_work


@pytest.mark.parametrize("kind", [TwoLevelQueue, TreeHeap])
def test_rows_leave_by_priority_whatever_was_changed(kind: type[FlushQueue]) -> None:
    rng, queue, expected = random.Random(3), kind(), {}
    for _ in range(4000):
        if expected and rng.random() < 0.4:
            row, priority = queue.take()
            assert priority == min(expected.values()) == expected.pop(row)
        else:
            row, priority = rng.randrange(200), rng.choice((rng.randrange(50), NEVER))
            queue.put(row, priority)
            expected[row] = priority
        assert len(queue) == len(expected)
        assert queue.front() == min(expected.values(), default=NEVER)


def test_the_heap_touches_more_the_more_rows_wait() -> None:
    touched = {}
    for kind in (TwoLevelQueue, TreeHeap):
        for rows in (100, 10_000):
            queue = kind()
            for row in random.Random(1).sample(range(rows), rows):
                queue.put(row, row % 37)
            filled = queue.touched
            for _ in range(rows):
                queue.take()
            touched[kind, rows] = (queue.touched - filled) / rows
    assert touched[TwoLevelQueue, 10_000] < 1.1
    assert touched[TreeHeap, 10_000] > 1.5 * touched[TreeHeap, 100]


@pytest.mark.parametrize("kind", [TwoLevelQueue, TreeHeap])
def test_gates_flush_what_a_step_reads_and_the_background_the_rest(kind: type[FlushQueue]) -> None:
    steps = [np.array(rows) for rows in ([1, 2, 3], [1, 4], [2, 5], [5, 6])]
    gates_only = queue_work(kind(), steps, lookahead=2, share=0.0)
    assert (gates_only.updates, gates_only.dequeues, gates_only.rows) == (9, 3, 6)
    everything = queue_work(kind(), steps, lookahead=2, share=1.0)
    assert (everything.updates, everything.dequeues, everything.rows) == (9, 9, 0)


def test_a_row_that_waits_becomes_due_when_its_next_read_is_known() -> None:
    steps = [np.array(rows) for rows in ([7], [1], [2], [7])]
    assert queue_work(TwoLevelQueue(), steps, lookahead=2, share=0.0).updates == 4 + 1
