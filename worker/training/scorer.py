"""Scores samples with a stored model, without changing any row or parameter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.jobs import JobSpec
from esd.services.domain.reports import SCORE_BINS
from esd.services.wire.trained_models import dense_arrays
from esd.worker.models import build_model
from esd.worker.models.model import Batch
from esd.worker.models.own import failures_named
from esd.worker.training.device import prepare_device
from esd.worker.training.embeddings import Embedder


class Scorer:
    """A model on the CPU for scoring only. Must be used in the thread that made it.

    Args:
        job: the job of the model.
        dense: its dense parameters, as written by `DenseParameters.save` or `to_npz`.

    Raises:
        FailedPrecondition: the parameters belong to another model.
    """

    def __init__(self, job: JobSpec, dense: bytes) -> None:
        prepare_device("cpu", 1)
        self._name = job.model.name
        self._model = build_model(job)
        self._embed = Embedder(job)
        saved = {name: torch.from_numpy(values) for name, values in dense_arrays(dense).items()}
        try:
            self._model.load_state_dict(saved)
        except RuntimeError as error:
            raise FailedPrecondition(f"the stored parameters are not of model {job.model.name}: {error}") from None
        self._model.eval()

    @torch.inference_mode()
    def score(
        self,
        batch: SampleBatch,
        values: Sequence[NDArray[np.float32]],
        inverse: Sequence[NDArray[np.integer[Any]]],
    ) -> tuple[NDArray[np.float64], NDArray[np.uint16]]:
        """Returns the sums of the losses of k samples by label, float64 [L], and their score bins, uint16 [k, L].

        A model with a loss of its own has the same loss for all labels.

        Args:
            batch: the samples.
            values: by table, float32 [u, D], the rows that the samples use.
            inverse: by table, int64 [N]: the row of each id of the samples in this table.

        Raises:
            FailedPrecondition: the model's code fails.
        """
        rows = [
            functional.embedding(torch.from_numpy(each), torch.from_numpy(of_table))
            for each, of_table in zip(inverse, values, strict=True)
        ]
        samples = Batch(self._embed(rows, batch.lengths), torch.tensor(batch.dense), torch.tensor(batch.labels))
        self._model.samples.begin(0, np.arange(len(batch), dtype=np.uint32))
        with failures_named(self._name, "on held-out samples"):
            outputs = self._model(samples.embeddings, samples.dense)
            losses = self._model.label_losses(outputs, samples, self._model.loss(outputs, samples))
            return losses.double().sum(dim=0).numpy(), _bins(self._model.scores(outputs.double()))


def _bins(scores: Tensor) -> NDArray[np.uint16]:
    return (scores * SCORE_BINS).clamp(0, SCORE_BINS - 1).numpy().astype(np.uint16)
