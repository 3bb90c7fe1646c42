"""One machine that trains alone, the whole batch of each iteration: `python -m benchmarks.rivals.alone FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.rivals.course import Course, ready
from benchmarks.rivals.task import Learner, Rows, Task


def main() -> None:
    """Trains the task of a folder."""
    task = Task.read(Path(sys.argv[1]))
    learner, rows, parts = Learner(task.job), Rows(task.job.table, task.ids), task.parts(0, 1)
    ready()
    course = Course(task, lambda: learner.judge(task, rows))
    for done, part in enumerate(parts, 1):
        learner.train(part, rows)
        course.passed(done)


if __name__ == "__main__":
    main()
