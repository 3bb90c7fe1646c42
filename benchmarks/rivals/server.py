"""A parameter server without caches, which takes one round trip per iteration (benchmarks/plain_server.py).

python -m benchmarks.rivals.server serve FOLDER WORKERS ADDRESS
python -m benchmarks.rivals.server work FOLDER WORKERS ADDRESS RANK
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.plain_server import Floats, Ids, Messages, PlainServer, Sent
from benchmarks.quality.dense import OPTIONS
from benchmarks.rivals.course import Course, ready
from benchmarks.rivals.peers import summed
from benchmarks.rivals.task import Learner, Part, Rows, Task

_LONGEST_WAIT = 60.0  # seconds for the server


def flattened(model: nn.Module) -> tuple[Tensor, Tensor]:
    """Makes parameters and gradients of a model views of two vectors, and returns these, float32 [P]."""
    parameters = list(model.parameters())
    values = torch.cat([each.detach().reshape(-1) for each in parameters])
    gradients = torch.zeros_like(values)
    sizes = [each.numel() for each in parameters]
    for parameter, own, of_loss in zip(
        parameters, torch.split(values, sizes), torch.split(gradients, sizes), strict=True
    ):
        parameter.data, parameter.grad = own.view_as(parameter), of_loss.view_as(parameter)
    return values, gradients


class ServedModel:
    """All parameters, at the server. Messages name rows by their places.

    Args:
        task: is trained.
        workers: their number.

    Attributes:
        dimension: D.
    """

    def __init__(self, task: Task, workers: int) -> None:
        self.dimension = task.job.table.dimension
        self._workers = workers
        self._learner, self._rows = Learner(task.job), Rows(task.job.table, task.ids)
        self._values, self._gradients = flattened(self._learner.model)
        self._task = task
        self._course: Course
        self._done = 0

    def begin(self) -> None:
        """Begins the course: the workers send their first messages now."""
        self._course = Course(self._task, lambda: self._learner.judge(self._task, self._rows))

    @property
    def dense(self) -> Floats:
        """The dense parameters, float32 [P]."""
        return self._values.numpy()

    def look_up(self, ids: Ids) -> Floats:
        """Returns rows, float32 [u, D]."""
        rows: Floats = self._rows.look_up(torch.from_numpy(ids.astype(np.int64))).numpy()
        return rows

    def train(self, parts: Sequence[Sent]) -> None:
        """Trains by the gradients of all workers, each of its own mean loss."""
        self._gradients.copy_(torch.from_numpy(np.mean([part.dense for part in parts], axis=0)))
        self._learner.optimizer.step()
        places = [torch.from_numpy(part.ids.astype(np.int64)) for part in parts]
        distinct, total, _ = summed(places, [torch.from_numpy(part.rows) for part in parts])
        self._rows.train(distinct, total.div_(self._workers))
        self._done += 1
        self._course.passed(self._done)


def work(task: Task, workers: int, address: tuple[str, int], rank: int) -> None:
    """Trains one worker's part of every batch."""
    learner, parts = Learner(task.job), task.parts(rank, workers)
    values, gradients = flattened(learner.model)
    ready()  # then the server listens
    with socket.create_connection(address, _LONGEST_WAIT) as server:
        _train(Messages(server), learner, parts, values, gradients)


def _train(messages: Messages, learner: Learner, parts: Sequence[Part], values: Tensor, gradients: Tensor) -> None:
    none = np.empty(0, np.float32)
    messages.send(none, none, parts[0].places.numpy().astype(np.uint64))
    for part, following in zip_longest(parts, parts[1:]):
        rows = torch.from_numpy(messages.floats()).view(-1, OPTIONS.dim).requires_grad_()
        values.copy_(torch.from_numpy(messages.floats()))
        gradients.zero_()
        of_rows = learner.backward(learner.loss(part, rows), rows)
        places = np.empty(0, np.uint64) if following is None else following.places.numpy().astype(np.uint64)
        messages.send(of_rows.numpy(), gradients.numpy(), places)
    messages.floats(), messages.floats()  # the answer to the last gradients


def main() -> None:
    """Runs the server or a worker."""
    role, task, workers = sys.argv[1], Task.read(Path(sys.argv[2])), int(sys.argv[3])
    host, port = sys.argv[4].split(":")
    if role == "serve":
        with socket.create_server((host, int(port))) as listening:
            torch.set_num_threads(1)
            served = ServedModel(task, workers)
            ready()
            served.begin()
            PlainServer(workers, served).serve(listening)
    else:
        work(task, workers, (host, int(port)), int(sys.argv[5]))


if __name__ == "__main__":
    main()
