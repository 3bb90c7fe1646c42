"""Held-out samples are scored with the model of a checkpoint, also where the checkpoint holds further arrays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from esd.services.domain.dense_sums import AllReduce, LowRank
from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.tables import OptimizerKind, OptimizerSpec
from esd.worker.training.reducer import Alone
from esd.worker.training.scorer import Scorer
from esd.worker.training.trainer import model_of_job
from tests.support.simple_clients import job_with, samples


@pytest.mark.parametrize("dense_sum", [AllReduce(), LowRank(2)])
@pytest.mark.parametrize("kind", OptimizerKind)
def test_a_checkpoint_scores_as_the_model_that_it_holds(dense_sum, kind):
    model = replace(job_with().model, hidden=(16, 16), dense_optimizer=OptimizerSpec(kind))
    job = job_with(model=model, dense_sum=dense_sum)
    dense = model_of_job(job, Alone(), torch.device("cpu"))
    batch = samples(8)
    inverse = [np.arange(batch.ids.size)]
    values = [np.random.default_rng(0).normal(size=(batch.ids.size, 4)).astype(np.float32)]
    of_checkpoint, of_end = (
        Scorer(job, saved).score(batch, values, inverse) for saved in (dense.save(), dense.to_npz())
    )
    np.testing.assert_array_equal(of_checkpoint[0], of_end[0])
    np.testing.assert_array_equal(of_checkpoint[1], of_end[1])
    with pytest.raises(FailedPrecondition, match="the stored parameters are not of model wdl"):
        Scorer(replace(job, model=replace(model, hidden=(8,))), dense.save())
