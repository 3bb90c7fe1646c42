"""One iteration of a worker, for a training loop that makes predictions and losses: gradients in, trained rows out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from esd.services.domain.errors import FailedPrecondition, InvalidArgument, Unavailable
from esd.services.domain.jobs import JobSpec
from esd.services.domain.plans import IterationPlan
from esd.services.domain.reports import SCORE_BINS
from esd.services.domain.tables import TableSpec
from esd.worker.models.inputs import Jagged, SharedLists
from esd.worker.training.dense import DenseParameters
from esd.worker.training.embeddings import Embedder
from esd.worker.training.initial_rows import with_initial_rows, without_initial_rows
from esd.worker.training.rows import RowCache
from esd.worker.training.shared_gradients import SharedGradients
from esd.worker.training.step_times import StepTimes


@dataclass(frozen=True, slots=True)
class StepResult:
    """The figures of one step.

    Attributes:
        loss_sum: sum of the unweighted losses before training (progressive validation).
        label_loss_sums: of several labels, the same of each; with one label none.
        score_bins: uint16 [m, L], floor(65536 * predicted probability).
        times: the times of its parts.
        reduced_floats: how many values were summed for replicated rows.
        drift: how far the parameters were from an average, as IterationReport has it.
    """

    loss_sum: float
    label_loss_sums: tuple[float, ...]
    score_bins: NDArray[np.uint16]
    times: StepTimes
    reduced_floats: int = 0
    drift: float = 0.0


class _Stage(Enum):
    """How far a step has come. The value names the call that comes next, or the end."""

    BEGUN = "backward"
    SUMMED = "optimise"
    TRAINED = "trained"
    LOST = "lost"


class Step:
    """The m samples of one iteration that this worker trains. A loop calls `backward` once, and then `optimise`.

        outputs = net(step.embeddings, step.dense)
        losses = binary_cross_entropy_with_logits(outputs, step.labels, reduction="none")
        step.backward(losses, scores=outputs.sigmoid())
        step.optimise()

    A worker may have no samples in an iteration, m = 0, and takes its step all the same. When another worker is lost
    meanwhile, both calls return without an effect, and the session goes back to the last checkpoint by itself.

    Attributes:
        job: of which it is an iteration.
        model: that is trained.
        iteration: its number in the job, counted from 0.
        batch_size: k, the samples of all workers in this iteration.
        positions: uint32 [m], the place of each sample in the global batch, for randomness that must not depend on
            which worker trains a sample.
        embeddings: by the name of the feature, in the order of the features: float32 [m, D], or `esd.Jagged` of a
            feature that is not pooled, and at the end `esd.SharedLists` of the job's negatives. Their gradients train
            the rows.
        dense: float32 [m, d], the dense features.
        labels: float32 [m, L].
        weights: float32 [m], by which `backward` multiplies each sample's loss; None: 1.
    """

    def __init__(
        self,
        plan: IterationPlan,
        job: JobSpec,
        caches: Sequence[RowCache],
        dense: DenseParameters,
        embed: Embedder,
        device: torch.device,
        rows_trained: Callable[[], object],
    ) -> None:
        self._plan = plan
        self.job = job
        self.model = dense.model
        self._caches = caches
        self._parameters = dense
        self._device = device
        self._rows_trained = rows_trained
        self._stage = _Stage.BEGUN
        self._failure: Unavailable | None = None
        try:
            dense.begin(plan.iteration, len(self), plan.batch_size, plan.dense_role)
        except Unavailable as error:
            self._stage, self._failure = _Stage.LOST, error
        self._began = time.perf_counter()  # a worker that returns has waited for another one
        self._used = plan.rows_by_table(len(job.tables))
        self._rows = [
            with_initial_rows(cache.look_up(each, table.dimension), each.initial, table).requires_grad_()
            for cache, each, table in zip(caches, self._used, job.tables, strict=True)
        ]
        self.iteration = plan.iteration
        self.batch_size = plan.batch_size
        self.positions = plan.positions
        self.embeddings: Mapping[str, Tensor | Jagged | SharedLists] = embed.with_negatives(
            self._rows, plan.lengths, plan.positions, plan.chunks
        )
        self.dense = torch.tensor(plan.dense, device=device)
        self.labels = torch.tensor(plan.labels, device=device)
        self.weights = None if plan.weights is None else torch.tensor(plan.weights, device=device)
        dense.buffers.keep()

    def __len__(self) -> int:
        """Returns m, the number of samples."""
        return len(self._plan.labels)

    def backward(self, losses: Tensor, *, scores: Tensor) -> None:
        """Computes all gradients, and sums the gradients of the parameters over all workers.

        Every sample's loss is multiplied by its weight, and every gradient divided by the size of the global batch, so
        the sum over the workers does not depend on which of them trains which sample. On return, `grad` of each
        parameter is the gradient of the global batch, the same bits on every worker.

        Args:
            losses: float32 [m], the loss of each sample, or [m, L], the loss of each label, of which the mean counts. A
                loss function of torch returns them with `reduction="none"`. They are neither weighted nor divided.
            scores: [m] or [m, L], in 0..1: the predicted probability of each label, which the metrics of the job see.

        Raises:
            InvalidArgument: losses or scores have another shape, or scores are outside 0..1.
            FailedPrecondition: the loss is not finite, in which case nothing is trained; or the step was here before.
        """
        if not self._takes(_Stage.BEGUN):
            return
        losses, scores = self._checked(losses, "losses"), self._checked(scores, "scores")
        self._parameters.buffers.restore()
        try:
            self._score(losses.detach(), scores.detach())
            if len(self):
                self._differentiate(losses)
            self._computed = self._done()
            self._train_own_rows()
            if not self._shared.floats:
                self._rows_trained()
            self._trained_rows = self._done()
            self._sum()
            self._summed = self._done()
        except Unavailable as error:
            self._stage, self._failure = _Stage.LOST, error
        else:
            self._stage = _Stage.SUMMED

    def optimise(self) -> None:
        """Trains the parameters by the optimizer, and the rows that all workers train together.

        Raises:
            FailedPrecondition: `backward` was not called before.
        """
        if not self._takes(_Stage.SUMMED):
            return
        if self._shared.floats:
            for cache, rows, table, sums in zip(
                self._caches, self._used, self.job.tables, self._shared.of_tables, strict=True
            ):
                rate = self._rate(table)
                cache.train_replicated(rows, sums, table.optimizer, rate, self.iteration + 1)
            self._rows_trained()
        self._parameters.step(self.iteration)
        self._optimised = self._done()
        try:
            self._parameters.end(self.iteration)
        except Unavailable as error:
            self._stage, self._failure = _Stage.LOST, error
        else:
            self._ended = self._done()
            self._stage = _Stage.TRAINED

    def result(self) -> StepResult:
        """Returns the figures of the step, which is over then and lets go of the caches.

        Raises:
            FailedPrecondition: the loop went on without `backward` or `optimise`.
            Unavailable: another worker was lost or late.
        """
        if self._failure is not None:
            raise self._failure
        if self._stage is not _Stage.TRAINED:
            raise FailedPrecondition(
                f"the training loop left iteration {self.iteration} without a call of step.{self._stage.value}: every "
                "step needs step.backward(losses, scores=...) and then step.optimise()"
            )
        self._caches, self._rows, self._used = (), [], []
        return StepResult(
            self._loss_sum,
            self._label_loss_sums,
            self._score_bins,
            StepTimes(self._began, self._computed, self._trained_rows, self._summed, self._optimised, self._ended),
            reduced_floats=self._shared.floats,
            drift=self._parameters.take_drift(),
        )

    # --- parts -------------------------------------------------------------------------------------------------------

    def _done(self) -> float:
        """Returns the time at which the device has done all of its work so far.

        On a GPU, which works while this thread goes on, a time without this wait would be of no phase. The wait costs
        little: the next phase needs the results on the host.
        """
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()
        return time.perf_counter()

    def _takes(self, stage: _Stage) -> bool:
        """Returns whether a call has an effect, and refuses it when it comes at another time than its own."""
        if self._stage is _Stage.LOST:
            return False
        if self._stage is not stage:
            raise FailedPrecondition(
                f"step.{stage.value} was called in iteration {self.iteration} where "
                + ("the step is over" if self._stage is _Stage.TRAINED else f"step.{self._stage.value} comes next")
            )
        return True

    def _checked(self, values: Tensor, name: str) -> Tensor:
        """Returns losses or scores [m] or [m, L] as they were given, but [m] where they are [m, 1]."""
        samples, labels = self.labels.shape
        if not isinstance(values, Tensor) or values.shape not in ((samples,), (samples, labels)):
            found = list(values.shape) if isinstance(values, Tensor) else type(values).__name__
            hint = ': a loss function needs reduction="none"' if name == "losses" else ""
            raise InvalidArgument(
                f"{name} of iteration {self.iteration} are {found}, they must be [{samples}] or "
                f"[{samples}, {labels}], a value for each sample or each label{hint}"
            )
        return values.view(samples) if labels == 1 else values

    def _score(self, losses: Tensor, scores: Tensor) -> None:
        """Computes the figures of the report before anything is trained."""
        labels = self.labels.shape[1]
        of_samples = losses if losses.ndim == 1 else losses.mean(dim=1)
        self._loss_sum: float = of_samples.double().sum().item()
        if not math.isfinite(self._loss_sum):
            raise FailedPrecondition(
                f"the loss of iteration {self.iteration} is {self._loss_sum}: training diverged, lower the learning "
                f"rate; {self._not_finite(of_samples)}"
            )
        self._label_loss_sums: tuple[float, ...] = ()
        if labels > 1:
            of_labels = losses if losses.ndim > 1 else losses.unsqueeze(1).expand(len(losses), labels)
            self._label_loss_sums = tuple(of_labels.double().sum(dim=0).tolist())
        binned = (scores.double() * SCORE_BINS).cpu().numpy()
        if not ((binned > -1) & (binned < SCORE_BINS + 1)).all():  # the last bits of a float are no mistake
            raise InvalidArgument(
                f"scores of iteration {self.iteration} are in {binned.min() / SCORE_BINS:g}.."
                f"{binned.max() / SCORE_BINS:g}, they must be probabilities in 0..1, such as outputs.sigmoid()"
            )
        bins = binned.clip(0, SCORE_BINS - 1).astype(np.uint16)
        self._score_bins: NDArray[np.uint16] = np.broadcast_to(
            bins if bins.ndim > 1 else bins[:, None], self.labels.shape
        )

    def _differentiate(self, losses: Tensor) -> None:
        losses = losses if losses.ndim == 1 else losses.mean(dim=1)
        if self.weights is not None:
            losses = losses * self.weights
        torch.autograd.backward(losses.sum() / self.batch_size)

    def _train_own_rows(self) -> None:
        """Trains the rows that this worker alone trains, and keeps the partial gradients of the others."""
        self._shared = SharedGradients(self._used, self.job.tables, self._device)
        for cache, rows, table, row, shared in zip(
            self._caches, self._used, self.job.tables, self._rows, self._shared.of_tables, strict=True
        ):
            if row.grad is not None:
                gradients = without_initial_rows(row.grad, rows.initial)
                cache.train(rows, gradients, shared, table.optimizer, self._rate(table), self.iteration + 1)

    def _sum(self) -> None:
        """Sums the gradients and buffers that all workers share. Every worker starts the sums in this order.

        A model without trained parameters sums one zero: checkpoints and forgotten rows rely on a sum in each iteration
        as their barrier.
        """
        self._parameters.start()
        if not len(self._parameters.gradients):
            self._parameters.reducer.start(torch.zeros(1, device=self._device))
        self._shared.start(self._parameters.reducer, zeros=not len(self))
        self._parameters.buffers.start(leads=0 in self.positions, zeros=not len(self))
        self._parameters.wait()  # for all of them

    def _rate(self, table: TableSpec) -> float:
        return float(self.job.row_rates(table, np.array([self.iteration + 1]))[0])

    def _not_finite(self, losses: Tensor) -> str:
        """Names the first sample without a finite loss, by its number in the stream, and all else not finite."""
        job, first = self.job, int(torch.nonzero(~losses.isfinite())[0, 0])
        sample = (self.iteration - job.first_iteration) * job.batch_size + int(self.positions[first])
        wrong = [f"parameter {name}" for name, each in self._parameters.named.items() if not each.isfinite().all()]
        wrong += [
            f"rows of table {table.name}"
            for table, each in zip(job.tables, self._rows, strict=True)
            if not each.isfinite().all()
        ]
        besides = f"not finite are {', '.join(wrong)}" if wrong else "all parameters and rows are finite"
        return f"it is so for sample {sample} of the stream, and {besides}"


class Steps:
    """Makes the steps of one epoch. It belongs to the thread that trains.

    Args:
        job: of the epoch.
        caches: of the job's tables, by number, on `device`.
        dense: the dense parameters.
        device: where training runs.
    """

    def __init__(self, job: JobSpec, caches: Sequence[RowCache], dense: DenseParameters, device: torch.device) -> None:
        self._job = job
        self._caches = caches
        self._dense = dense
        self._device = device
        self._embed = Embedder(job)

    def begin(self, plan: IterationPlan, rows_trained: Callable[[], object] = lambda: None) -> Step:
        """Begins an iteration, whose rows are in the caches at the versions of the plan.

        Args:
            plan: of the iteration.
            rows_trained: called as soon as every row is trained, which may be before the dense gradients are summed.
        """
        return Step(plan, self._job, self._caches, self._dense, self._embed, self._device, rows_trained)
