"""The task of all rivals: samples, a model and its optimizers, the same for each.

The program that starts them reads the samples and numbers their rows once; each rival maps that file into its memory.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from benchmarks.quality.dense import OPTIONS
from benchmarks.quality.samples import load
from esd.native import rows as native_rows
from esd.services.domain.jobs import JobSpec
from esd.services.domain.tables import TableSpec
from esd.worker.models import build_model
from esd.worker.training.pooling import embed
from testbed.auc import exact_auc

_JUDGED = 1024  # samples at a time
_FILE = "task.pickle"


@dataclass(frozen=True, slots=True)
class Task:
    """Samples, a model and its marks.

    Attributes:
        job: has the model, the optimizers and the seed of all first values.
        ids: uint64 [R], the ids of all rows, ascending.
        places: int32 [N, F], the row of each feature of each sample: of the iterations in order, then of the samples
            that judge the model.
        dense: float32 [N, d].
        labels: float32 [N].
        batch: samples of an iteration.
        iterations: that are trained.
        marks: the iterations after which the model is judged.
    """

    job: JobSpec
    ids: NDArray[np.uint64]
    places: NDArray[np.int32]
    dense: NDArray[np.float32]
    labels: NDArray[np.float32]
    batch: int
    iterations: int
    marks: tuple[int, ...]

    @classmethod
    def of(cls, data: str, batch: int, iterations: int, every: int) -> Task:
        """Reads samples. The model is judged after every so many iterations, and in the end."""
        samples = load(data, batch, iterations)
        job = OPTIONS.job(features=samples.features, dense_features=samples.dense_features, parameter_servers=("none",))
        both = (samples.trained, samples.held_out)
        ids, places = np.unique(np.concatenate([each.by_field for each in both]), return_inverse=True)
        return cls(
            job,
            ids,
            places.reshape(-1, len(samples.features)).astype(np.int32),
            np.concatenate([each.dense for each in both]),
            np.concatenate([each.labels[:, 0] for each in both]),
            batch,
            iterations,
            (*range(every, iterations, every), iterations),
        )

    def write(self, folder: Path) -> None:
        """Writes the task for the rivals."""
        with (folder / _FILE).open("wb") as file:
            pickle.dump(self, file, protocol=pickle.HIGHEST_PROTOCOL)

    @classmethod
    def read(cls, folder: Path) -> Task:
        """Reads the task that the program has written that started this one."""
        with (folder / _FILE).open("rb") as file:
            task: Task = pickle.load(file)  # noqa: S301 - see above
        return task

    def parts(self, rank: int, workers: int) -> list[Part]:
        """Returns the samples of one worker of each iteration."""
        size = self.batch // workers
        starts = (iteration * self.batch + rank * size for iteration in range(self.iterations))
        return [self._part(slice(start, start + size)) for start in starts]

    def held_out(self) -> Iterator[Part]:
        """Yields the samples that judge the model."""
        for start in range(self.iterations * self.batch, len(self.labels), _JUDGED):
            yield self._part(slice(start, start + _JUDGED))

    def _part(self, which: slice) -> Part:
        distinct, inverse = np.unique(self.places[which], return_inverse=True)
        return Part(
            torch.from_numpy(distinct.astype(np.int64)),
            torch.from_numpy(inverse.reshape(-1)),
            torch.from_numpy(self.dense[which]),
            torch.from_numpy(self.labels[which]),
        )


@dataclass(frozen=True, slots=True)
class Part:
    """The samples of a worker in an iteration.

    Attributes:
        places: int64 [u], their distinct rows, ascending.
        inverse: int64 [m F], which of these each feature of each sample has.
        dense: float32 [m, d].
        labels: float32 [m].
    """

    places: Tensor
    inverse: Tensor
    dense: Tensor
    labels: Tensor


class Rows:
    """All rows of a table, each with its sum of squared gradients: row-wise Adagrad.

    Attributes:
        values: float32 [R, D + 1].
    """

    def __init__(self, table: TableSpec, ids: NDArray[np.uint64]) -> None:
        self._dimension, self._optimizer = table.dimension, table.optimizer
        values = np.empty((len(ids), table.row_width), np.float32)
        new = np.zeros(len(ids), np.int64)
        native_rows.initialise(ids, new, values, table.dimension, table.seed, table.init_scale)
        self.values = torch.from_numpy(values)

    def look_up(self, places: Tensor) -> Tensor:
        """Returns rows without their sums, float32 [u, D]."""
        return self.values[places, : self._dimension]

    def train(self, places: Tensor, gradients: Tensor) -> None:
        """Takes a step on distinct rows."""
        rows = self.values[places]
        sums = rows[:, self._dimension]
        sums += gradients.square().mean(1)
        rates = self._optimizer.learning_rate / (sums.sqrt() + self._optimizer.epsilon)
        rows[:, : self._dimension] -= rates[:, None] * gradients
        self.values[places] = rows


class Learner:
    """A model with its dense parameters.

    Attributes:
        model: maps embeddings and dense features to logits [m, 1].
        optimizer: of its parameters.
    """

    def __init__(self, job: JobSpec) -> None:
        torch.set_num_threads(1)
        self._features = job.features
        self.model = build_model(job)
        spec = job.model.dense_optimizer
        self.optimizer = torch.optim.Adagrad(
            self.model.parameters(), lr=spec.learning_rate, eps=spec.epsilon, fused=True
        )

    def loss(self, part: Part, rows: Tensor, model: torch.nn.Module | None = None) -> Tensor:
        """Returns the mean loss of samples with these rows [u, D], through the model or a wrapper of it."""
        logits = self._logits(part, rows, self.model if model is None else model)
        return functional.binary_cross_entropy_with_logits(logits, part.labels)

    @staticmethod
    def backward(loss: Tensor, rows: Tensor) -> Tensor:
        """Adds to the gradients of dense parameters, and returns the rows' gradients."""
        torch.autograd.backward(loss)
        if rows.grad is None:
            raise RuntimeError("the loss does not depend on the rows")
        return rows.grad

    def train(self, part: Part, rows: Rows) -> None:
        """Takes a step on samples with the parameters and rows of this machine alone."""
        self.optimizer.zero_grad()
        embedded = rows.look_up(part.places).requires_grad_()
        of_rows = self.backward(self.loss(part, embedded), embedded)
        self.optimizer.step()
        rows.train(part.places, of_rows)

    @torch.inference_mode()
    def judge(self, task: Task, rows: Rows) -> tuple[float, float]:
        """Returns AUC and normalised entropy of the held-out samples."""
        parts = list(task.held_out())
        logits = torch.cat([self._logits(part, rows.look_up(part.places), self.model) for part in parts]).double()
        labels = torch.cat([part.labels for part in parts]).double()
        loss = functional.binary_cross_entropy_with_logits(logits, labels)
        entropy = functional.binary_cross_entropy(labels.mean().expand_as(labels), labels)
        return exact_auc(logits.numpy(), labels.numpy()), float(loss / entropy)

    def _logits(self, part: Part, rows: Tensor, model: torch.nn.Module) -> Tensor:
        embeddings = embed(functional.embedding(part.inverse, rows), None, self._features)
        logits: Tensor = model(embeddings, part.dense)
        return logits.squeeze(1)
