"""Times the engine's two-level queue beside tree heaps, with threads (FRUGAL §3.4 and Exp. 4).

The programme is native/yardsticks/flush_queues.cpp.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from testbed.native_targets import built

QUEUES = {  # by the programme's names
    "two-level": "two-level queues",
    "heap": "one heap",
    "heaps": "a heap per worker",
}


@dataclass(frozen=True, slots=True)
class QueueTimes:
    """The times of a queue for a stream.

    Attributes:
        queue: a name of QUEUES.
        threads: number of threads that used the queue.
        update_seconds: wall time of enqueue and adjustPriority.
        dequeue_seconds: wall time of dequeue.
        processor_seconds: processor time of all threads together.
        updates: number of updates.
        dequeues: number of flushed rows.
    """

    queue: str
    threads: int
    update_seconds: float
    dequeue_seconds: float
    processor_seconds: float
    updates: int
    dequeues: int


def queue_times(
    steps: Sequence[NDArray[np.uint32]],
    threads: Sequence[int],
    *,
    workers: int = 8,
    lookahead: int = 10,
    share: float = 0.8,
    rounds: int = 3,
) -> list[QueueTimes]:
    """Runs P2F (FRUGAL §3.3) over the rows of every step, once per queue and number of threads.

    Args:
        steps: distinct rows of each step, numbered from 0.
        threads: numbers of threads.
        workers: among which the rows of a step are shared out.
        lookahead: L, at most 31.
        share: rows that are flushed in the background, of those that a step trains.
        rounds: the fastest of so many runs counts.

    Raises:
        CalledProcessError: the programme cannot be built, or finds that a queue lost a row.
    """
    numbers = [str(number) for number in (workers, lookahead, share, rounds, *threads)]
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "steps"
        trace.write_bytes(b"".join(np.uint32(len(rows)).tobytes() + rows.astype(np.uint32).tobytes() for rows in steps))
        command = [str(built("flush_queues", "yardsticks")), str(trace), *numbers]
        printed = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    return [_times(line.split()) for line in printed.stdout.splitlines()]


def _times(words: Sequence[str]) -> QueueTimes:
    queue, threads, update, dequeue, processor, updates, dequeues = words
    return QueueTimes(queue, int(threads), float(update), float(dequeue), float(processor), int(updates), int(dequeues))
