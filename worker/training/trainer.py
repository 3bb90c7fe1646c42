"""One training step: forward pass, backward pass, update of the rows, update of the dense parameters."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.jobs import JobSpec
from esd.services.domain.plans import IterationPlan, UsedRows
from esd.services.domain.reports import SCORE_BINS
from esd.worker.models import build_model
from esd.worker.models.model import Batch
from esd.worker.models.own import failures_named
from esd.worker.training.all_reduce import DenseReducer
from esd.worker.training.dense import DenseParameters
from esd.worker.training.embeddings import Embedder
from esd.worker.training.rows import RowCache
from esd.worker.training.shared_buffers import SharedBuffers
from esd.worker.training.shared_gradients import SharedGradients


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one step brought.

    Attributes:
        loss_sum: sum of the losses before training (progressive validation), whatever the samples weigh.
        label_loss_sums: of several labels, the same of each; with one label none.
        score_bins: uint16 [m, L], floor(65536 * predicted probability).
        compute: seconds of the forward and backward pass.
        all_reduce: seconds in the all-reduce, waiting for other workers included.
        update: seconds in the optimizers.
        reduced_floats: how many values were summed for replicated rows.
    """

    loss_sum: float
    label_loss_sums: tuple[float, ...]
    score_bins: NDArray[np.uint16]
    compute: float
    all_reduce: float
    update: float
    reduced_floats: int = 0


class Trainer:
    """Trains the rows of caches and the dense parameters of a model.

    Every sample's loss is multiplied by its weight, and every gradient divided by the size of the global batch, not by
    its weight. So the sum over the workers does not depend on which of them trains which sample.

    Args:
        job: names the model and the optimizers.
        caches: of the job's tables, by number, on `device`.
        reducer: of the epoch.
        device: where the model is built.

    Attributes:
        dense: the dense parameters.
    """

    def __init__(self, job: JobSpec, caches: Sequence[RowCache], reducer: DenseReducer, device: torch.device) -> None:
        self._job = job
        self._caches = caches
        self._reducer = reducer
        self._device = device
        self._model = build_model(job).to(device)
        self._embed = Embedder(job.features, len(job.tables))
        self._buffers = SharedBuffers(self._model, reducer)
        self.dense = DenseParameters(self._model, job.model, reducer)

    def step(self, plan: IterationPlan) -> StepResult:
        """Trains one iteration, whose rows are in the caches at the versions of the plan.

        Raises:
            FailedPrecondition: the loss is not finite, or the model's code fails; nothing was trained.
            Unavailable: another worker is lost or late.
        """
        job, begin = self._job, time.perf_counter()
        used = plan.rows_by_table(len(job.tables))
        with self._buffers.changing(), failures_named(job.model.name, f"in iteration {plan.iteration}"):
            loss_sum, label_loss_sums, score_bins, gradients = self._forward_backward(plan, used)

        computed = time.perf_counter()
        step = plan.iteration + 1
        rates = [float(job.row_rates(table, np.array([step]))[0]) for table in job.tables]
        tables = list(zip(self._caches, used, (table.optimizer for table in job.tables), rates, strict=True))
        shared = SharedGradients(used, job.tables, self._device)
        for (cache, rows, optimizer, rate), gradient, own in zip(tables, gradients, shared.of_tables, strict=True):
            if gradient is not None:
                cache.train(rows, gradient, own, optimizer, rate, step)

        rows_updated = time.perf_counter()
        self.dense.start()  # every worker starts all sums in this order
        shared.start(self._reducer)
        self._buffers.start(leads=0 in plan.positions)
        self.dense.wait()  # for all of them
        self._buffers.finish()

        reduced = time.perf_counter()
        if shared.floats:
            for (cache, rows, optimizer, rate), sums in zip(tables, shared.of_tables, strict=True):
                cache.train_replicated(rows, sums, optimizer, rate, step)
        self.dense.step(job.dense_rate(plan.iteration))
        return StepResult(
            loss_sum,
            label_loss_sums,
            score_bins,
            compute=computed - begin,
            all_reduce=reduced - rows_updated,
            update=rows_updated - computed + time.perf_counter() - reduced,
            reduced_floats=shared.floats,
        )

    def _forward_backward(
        self, plan: IterationPlan, used: Sequence[UsedRows]
    ) -> tuple[float, tuple[float, ...], NDArray[np.uint16], list[Tensor | None]]:
        """Returns loss, that of each label if there are several, scores [m, L], and the gradients of the tables' rows.

        A table's are [N, D], those of the rows of all ids, or None without samples.

        The all-reduce of the dense gradients begins meanwhile.
        """
        if len(plan.labels) == 0:
            none = (0.0,) * plan.labels.shape[1] if plan.labels.shape[1] > 1 else ()
            return 0.0, none, np.zeros(plan.labels.shape, np.uint16), [None] * len(used)
        rows = [
            cache.look_up(each, table.dimension).requires_grad_()
            for cache, each, table in zip(self._caches, used, self._job.tables, strict=True)
        ]
        batch = Batch(
            self._embed(rows, plan.lengths),
            torch.tensor(plan.dense, device=self._device),
            torch.tensor(plan.labels, device=self._device),
        )
        self._model.samples.begin(plan.iteration, plan.positions)
        outputs = self._model(batch.embeddings, batch.dense)
        losses = self._model.loss(outputs, batch)
        loss_sum = losses.detach().double().sum().item()
        if not math.isfinite(loss_sum):
            raise FailedPrecondition(
                f"the loss of iteration {plan.iteration} is {loss_sum}: training diverged, lower the learning rate; "
                f"{self._not_finite(plan, losses, rows)}"
            )
        of_labels: list[float] = []
        if batch.labels.shape[1] > 1:
            of_labels = self._model.label_losses(outputs.detach(), batch, losses.detach()).double().sum(dim=0).tolist()
        if plan.weights is not None:
            losses = losses * torch.tensor(plan.weights, device=self._device)
        torch.autograd.backward(losses.sum() / plan.batch_size)
        scores = self._model.scores(outputs.detach().double()) * SCORE_BINS
        bins = scores.clamp(0, SCORE_BINS - 1).cpu().numpy().astype(np.uint16)
        return loss_sum, tuple(of_labels), bins, [each.grad for each in rows]

    def _not_finite(self, plan: IterationPlan, losses: Tensor, rows: Sequence[Tensor]) -> str:
        """Names the first sample without a finite loss, by its number in the stream, and what is not finite besides."""
        first = int(torch.nonzero(~losses.isfinite())[0, 0])
        sample = (plan.iteration - self._job.first_iteration) * self._job.batch_size + int(plan.positions[first])
        wrong = [f"parameter {name}" for name, each in self._model.named_parameters() if not each.isfinite().all()]
        wrong += [
            f"rows of table {table.name}"
            for table, each in zip(self._job.tables, rows, strict=True)
            if not each.isfinite().all()
        ]
        besides = f"not finite are {', '.join(wrong)}" if wrong else "all parameters and rows are finite"
        return f"it is so for sample {sample} of the stream, and {besides}"
