"""The figures of a run by its number of workers: per iteration, and of a worker in the mean."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.e2e.processors import ProcessorTime
from benchmarks.e2e.run import SELF, Window
from benchmarks.growth import Point


def test_processor_time_is_per_iteration_and_of_one_worker_in_the_mean() -> None:
    seconds = {"ps-0": 0.4, "dispatcher": 0.8, "worker-0": 1.0, "worker-1": 3.0, SELF: 0.2}
    window = Window(
        first=8,
        iterations=20,
        seconds=5.0,
        processors={name: ProcessorTime(total, {}) for name, total in seconds.items()},
        pulled=np.array([100, 300]),
        pushed=np.array([60, 140]),
        direct=np.array([0, 0]),
        on_links=np.array([160, 440]),
        phases=(),
        decision_seconds=0.0,
        auc=0.5,
        feedback={},
    )
    point = Point.of(2, window)
    assert (point.workers, point.iterations, point.iterations_per_second) == (2, 20, 4.0)
    spent = [point.server_ms, point.dispatcher_ms, point.driver_ms, point.worker_ms]
    assert spent == pytest.approx([20, 40, 10, 100])
    assert point.moved_bytes == pytest.approx(30)
