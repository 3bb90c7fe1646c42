"""Dense parameters and their optimizer go through a checkpoint without a bit lost."""

from __future__ import annotations

import pytest
import torch

from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.tables import OptimizerKind, OptimizerSpec
from esd.worker.training.reducer import Alone
from esd.worker.training.trainer import model_of_job


def dense_of(make_job, kind, **changes):
    job = make_job(optimizer=OptimizerSpec(kind, 0.01), **changes)
    return model_of_job(job, Alone(), torch.device("cpu"))


def train(dense, steps, seed):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        dense.gradients.copy_(torch.randn(dense.gradients.shape, generator=generator))
        dense.step(0)


@pytest.mark.parametrize("kind", list(OptimizerKind))
def test_training_goes_on_as_if_nothing_had_happened(make_job, kind):
    original, restored = dense_of(make_job, kind), dense_of(make_job, kind)
    train(original, 3, seed=1)
    saved = original.save()
    train(original, 3, seed=2)
    train(restored, 1, seed=9)  # whatever it holds is replaced
    restored.load(saved)
    train(restored, 3, seed=2)
    assert restored.to_npz() == original.to_npz()
    assert restored.save() == original.save()


def test_a_checkpoint_of_another_model_is_refused(make_job):
    saved = dense_of(make_job, OptimizerKind.SGD).save()
    with pytest.raises(FailedPrecondition, match="does not hold parameter/"):
        dense_of(make_job, OptimizerKind.SGD, hidden=(9, 4)).load(saved)
