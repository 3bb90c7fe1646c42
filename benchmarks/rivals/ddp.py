"""Distributed data parallel training, the whole table on every machine.

    python -m benchmarks.rivals.ddp FOLDER RANK WORKERS FIRST CARD

torch's DistributedDataParallel sums the dense gradients in buckets while backward goes on. The gradients of rows are
sparse: each machine gathers the rows of all others in every iteration. Which rows these are is gathered an iteration
ahead, and the gradients leave as soon as backward has made them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from benchmarks.rivals.course import Course, ready
from benchmarks.rivals.peers import Place, summed
from benchmarks.rivals.task import Learner, Part, Rows, Task

_BUCKET = 1.0  # MiB


class Gathering:
    """Something that is gathered from all, from now on."""

    def __init__(self, own: Tensor, workers: int, group: dist.ProcessGroup) -> None:
        self._buffers = [torch.empty_like(own) for _ in range(workers)]
        self._work: Any = dist.all_gather(self._buffers, own, group=group, async_op=True)

    def wait(self) -> list[Tensor]:
        """Returns one tensor of each machine."""
        self._work.wait()
        return self._buffers


class SparseGradients:
    """The gradients of rows, gathered from all machines.

    Args:
        place: of this process.
        most: rows that a machine has in an iteration at most.
    """

    def __init__(self, place: Place, most: int) -> None:
        self._workers, self._most = place.workers, most
        self._group = dist.new_group()
        self._places: Gathering
        self._gradients: Gathering
        self._now: list[Tensor] = []

    def announce(self, part: Part) -> None:
        """Sends which rows the next iteration has."""
        own = torch.full((self._most,), -1, dtype=torch.int32)
        own[: len(part.places)] = part.places
        self._places = Gathering(own, self._workers, self._group)

    def begin(self) -> None:
        """Waits for the rows that all machines have in this iteration."""
        self._now = [each[each >= 0].long() for each in self._places.wait()]

    def send(self, gradients: Tensor) -> None:
        """Sends the gradients of this machine's rows, float32 [u, D]."""
        padded = gradients.new_zeros(max(map(len, self._now)), gradients.shape[1])
        padded[: len(gradients)] = gradients
        self._gradients = Gathering(padded, self._workers, self._group)

    def mean(self) -> tuple[Tensor, Tensor]:
        """Returns the rows of all machines, and their gradients of the mean loss of all samples."""
        values = [each[: len(places)] for each, places in zip(self._gradients.wait(), self._now, strict=True)]
        distinct, total, _ = summed(self._now, values)
        return distinct, total.div_(self._workers)


def main() -> None:
    """Trains the task of a folder with the others."""
    task, place = Task.read(Path(sys.argv[1])), Place.read(sys.argv[2:])
    learner, rows, parts = Learner(task.job), Rows(task.job.table, task.ids), task.parts(place.rank, place.workers)
    ready()
    place.join()
    model = DistributedDataParallel(learner.model, bucket_cap_mb=_BUCKET, gradient_as_bucket_view=True)
    sparse = SparseGradients(place, parts[0].inverse.numel())
    sparse.announce(parts[0])
    dist.barrier()
    course = Course(task, None if place.rank else lambda: learner.judge(task, rows))
    for done, part in enumerate(parts, 1):
        sparse.begin()
        if done < len(parts):
            sparse.announce(parts[done])
        learner.optimizer.zero_grad()
        embedded = rows.look_up(part.places).requires_grad_()
        embedded.register_hook(sparse.send)  # type: ignore[no-untyped-call]
        learner.backward(learner.loss(part, embedded, model), embedded)
        learner.optimizer.step()
        rows.train(*sparse.mean())
        course.passed(done, dist.barrier)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
