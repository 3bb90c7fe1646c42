"""Local SGD: each machine trains its own model and table, and all average theirs every H iterations.

    python -m benchmarks.rivals.local_sgd H FOLDER RANK WORKERS FIRST CARD

Averaged are dense parameters with their optimizer's sums, and each row with its sum over the machines that have trained
it since the last time; the others take it over.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from benchmarks.rivals.course import Course, ready
from benchmarks.rivals.peers import Place, gathered, summed
from benchmarks.rivals.task import Learner, Rows, Task


def average_dense(learner: Learner, workers: int) -> None:
    """Averages parameters and the state of their optimizer, as one vector."""
    parameters = list(learner.model.parameters())
    state = [learner.optimizer.state[each]["sum"] for each in parameters]
    tensors = [each.detach() for each in (*parameters, *state)]
    flat = torch.cat([each.reshape(-1) for each in tensors])
    dist.all_reduce(flat)
    flat /= workers
    for tensor, values in zip(tensors, torch.split(flat, [each.numel() for each in tensors]), strict=True):
        tensor.copy_(values.view_as(tensor))


def average_rows(rows: Rows, trained: list[Tensor], workers: int) -> None:
    """Averages the rows that were trained on any machine, `trained` on this one."""
    own = torch.unique(torch.cat(trained))
    counts = [torch.empty(1, dtype=torch.int64) for _ in range(workers)]
    dist.all_gather(counts, torch.tensor([len(own)]))
    lengths = [int(count) for count in counts]
    places = [each.long() for each in gathered(own.int(), lengths)]
    distinct, total, times = summed(places, gathered(rows.values[own], lengths))
    rows.values[distinct] = total / times[:, None]


def main() -> None:
    """Trains the task of a folder with the others."""
    every, task, place = int(sys.argv[1]), Task.read(Path(sys.argv[2])), Place.read(sys.argv[3:])
    learner, rows, parts = Learner(task.job), Rows(task.job.table, task.ids), task.parts(place.rank, place.workers)
    ready()
    place.join()
    dist.barrier()
    course = Course(task, None if place.rank else lambda: learner.judge(task, rows))
    trained: list[Tensor] = []
    for done, part in enumerate(parts, 1):
        learner.train(part, rows)
        trained.append(part.places)
        if done % every == 0 or done in task.marks:
            average_dense(learner, place.workers)
            average_rows(rows, trained, place.workers)
            trained.clear()
        course.passed(done, dist.barrier)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
