"""The training of a job's own model: the step of the built-in worker."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from esd.services.domain.jobs import JobSpec
from esd.services.domain.plans import IterationPlan
from esd.worker.models import build_model
from esd.worker.models.model import Batch, Model
from esd.worker.models.own import failures_named
from esd.worker.training.dense import DenseParameters
from esd.worker.training.optimizers import JobOptimizer
from esd.worker.training.reducer import DenseReducer
from esd.worker.training.rows import RowCache
from esd.worker.training.step import Step, StepResult, Steps
from esd.worker.training.summed_gradients import gradients_of


def model_of_job(job: JobSpec, reducer: DenseReducer, device: torch.device) -> DenseParameters:
    """Builds the model that a job names, and the optimizer of its dense parameters.

    Raises:
        InvalidArgument: there is no such model, or it cannot train this job's samples.
    """
    optimizer_of = partial(JobOptimizer, spec=job.model, rate_of=job.dense_rate)
    return DenseParameters(build_model(job).to(device), reducer, optimizer_of, gradients_of(job))


def train(step: Step) -> None:
    """Trains one step of a model that `model_of_job` has made.

    Raises:
        FailedPrecondition: the loss is not finite, or the model's code fails; nothing was trained.
    """
    model = step.model
    assert isinstance(model, Model)  # noqa: S101 - a job names nothing else
    with failures_named(step.job.model.name, f"in iteration {step.iteration}"):
        if not len(step):
            step.backward(step.labels, scores=step.labels)
        else:
            model.samples.begin(step.iteration, step.positions)
            outputs = model(step.embeddings, step.dense)
            losses = _losses(model, outputs, Batch(step.embeddings, step.dense, step.labels))
            step.backward(losses, scores=model.scores(outputs.detach().double()))
    step.optimise()


def _losses(model: Model, outputs: Tensor, batch: Batch) -> Tensor:
    """Returns the losses of samples, [m], or where the job's loss has one for each of several labels, [m, L]."""
    losses = model.loss(outputs, batch)
    several = batch.labels.shape[1] > 1 and type(model).loss is Model.loss
    return model.label_losses(outputs, batch, losses) if several else losses


class Trainer:
    """Trains iterations in this process alone, without services: for measurements and tests.

    Args:
        job: names the model and the optimizers.
        caches: of the job's tables, by number, on `device`.
        reducer: sums gradients.
        device: where the model is built.

    Attributes:
        dense: the dense parameters.
    """

    def __init__(self, job: JobSpec, caches: Sequence[RowCache], reducer: DenseReducer, device: torch.device) -> None:
        self.dense = model_of_job(job, reducer, device)
        self._steps = Steps(job, caches, self.dense, device)

    def step(self, plan: IterationPlan) -> StepResult:
        """Trains one iteration, whose rows are in the caches at the versions of the plan.

        Raises:
            FailedPrecondition: the loss is not finite, or the model's code fails; nothing was trained.
        """
        step = self._steps.begin(plan)
        train(step)
        return step.result()
