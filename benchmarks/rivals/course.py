"""The course of a rival's run: when it begins, its time without that in which the model is judged, and its lines.

A rival prints "ready" when it has loaded everything, begins at a line on its standard input, and then prints lines of
JSON: how many iterations it has trained in how many seconds, and at marks the figures of its model.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

from benchmarks.rivals.task import Task

Judge = Callable[[], tuple[float, float]]
_SHOWN = 16  # iterations between two lines


def ready() -> None:
    """Tells that everything is loaded, and waits until all may begin."""
    print("ready", flush=True)
    sys.stdin.readline()


class Course:
    """The clock of a run, from now on.

    Args:
        task: has the marks.
        judge: judges the model; None: this process prints nothing, and another one judges.
    """

    def __init__(self, task: Task, judge: Judge | None) -> None:
        self._task, self._judge = task, judge
        self._began = time.perf_counter()

    def passed(self, done: int, wait: Callable[[], object] = lambda: None) -> None:
        """Tells how far the run is.

        Args:
            done: iterations that all have trained.
            wait: returns when all processes of the rival have called it.
        """
        now = time.perf_counter()
        if done in self._task.marks:
            if self._judge is not None:
                auc, entropy = self._judge()
                tell(done, now - self._began, auc=auc, normalised_entropy=entropy)
            wait()
            self._began += time.perf_counter() - now
        elif self._judge is not None and done % _SHOWN == 0:
            tell(done, now - self._began)


def tell(iteration: int, seconds: float, **figures: float) -> None:
    """Prints a line."""
    print(json.dumps({"iteration": iteration, "seconds": seconds} | figures), flush=True)
