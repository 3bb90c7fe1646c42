"""Losses by name and of one's own, against torch's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from esd.services.domain.errors import InvalidArgument
from esd.services.domain.losses import Loss
from esd.worker import models
from esd.worker.models import build_model
from esd.worker.models.losses import LOSSES
from esd.worker.models.model import Batch, Model
from esd.worker.training.reducer import Alone
from esd.worker.training.rows import RowCache
from esd.worker.training.trainer import Trainer

OUTPUTS = [-3.0, -0.2, 0.0, 1.7]

# By name: labels that it takes, the loss of each sample by torch or by hand, and the scores.
CASES = {
    Loss.BCE: (
        [0.0, 1.0, 0.25, 1.0],
        lambda x, y: functional.binary_cross_entropy(x.sigmoid(), y, reduction="none"),
        lambda x: 1 / (1 + np.exp(-x)),
    ),
    Loss.MSE: ([-7.0, 0.0, 0.5, 12.0], lambda x, y: (x - y) ** 2, lambda x: np.clip(x, 0, 1)),
    Loss.POISSON: ([0.0, 3.0, 1.0, 40.0], lambda x, y: x.exp() - y * x, lambda x: 1 - np.exp(-np.exp(x))),
    Loss.HINGE: (
        [0.0, 1.0, 0.0, 1.0],
        lambda x, y: torch.where(y == 1, 1 - x, 1 + x).clamp(min=0),
        lambda x: 1 / (1 + np.exp(-x)),
    ),
}


def of_loss(job, loss):
    return replace(job, model=replace(job.model, loss=loss))


def batch_of(labels):
    return Batch({}, torch.empty(len(labels), 0), torch.tensor(labels).reshape(len(labels), -1))


def test_every_loss_has_a_case():
    assert set(LOSSES) == set(CASES) == set(Loss) - {Loss.OWN}


@pytest.mark.parametrize("loss", CASES, ids=lambda loss: loss.value)
def test_losses_gradients_and_scores_are_those_of_the_formula(make_job, loss):
    labels, formula, scores = CASES[loss]
    model = build_model(of_loss(make_job(), loss))
    outputs, expected = (torch.tensor(OUTPUTS, requires_grad=True) for _ in range(2))
    found, by_hand = model.loss(outputs, batch_of(labels)), formula(expected, torch.tensor(labels))
    torch.testing.assert_close(found, by_hand)
    found.sum().backward()
    by_hand.sum().backward()
    torch.testing.assert_close(outputs.grad, expected.grad)
    np.testing.assert_allclose(model.scores(outputs).detach().numpy()[:, 0], scores(np.array(OUTPUTS)), rtol=1e-6)


class Gaussian(Model):
    """Two outputs for a label: a mean, and the logarithm of a deviation. Its loss may be negative."""

    def __init__(self, inputs, hidden):
        super().__init__(inputs, hidden)
        self.out = nn.Linear(inputs.width, 2)

    def forward(self, embeddings, dense):
        return self.out(torch.cat((*embeddings.values(), dense), dim=1))

    def loss(self, outputs, batch):
        mean, log_deviation = outputs.unbind(1)
        return log_deviation + 0.5 * ((batch.labels[:, 0] - mean) / log_deviation.exp()) ** 2

    def scores(self, outputs):
        return outputs[:, :1].clamp(0, 1)


def test_a_sample_s_loss_is_the_mean_of_its_labels(make_job):
    model = build_model(make_job())
    outputs, labels = torch.randn(5, 2), torch.rand(5, 2).round()
    batch = Batch({}, torch.empty(5, 0), labels)
    losses = model.loss(outputs, batch)
    of_labels = model.label_losses(outputs, batch, losses)
    torch.testing.assert_close(of_labels.mean(dim=1), losses)
    torch.testing.assert_close(of_labels[:, 1], functional.softplus(outputs[:, 1]) - labels[:, 1] * outputs[:, 1])


@pytest.fixture
def gaussian(make_job, monkeypatch):
    monkeypatch.setitem(models.MODELS, "gaussian", Gaussian)
    return of_loss(make_job(model="gaussian"), Loss.OWN)


def test_a_model_with_a_loss_of_its_own_is_trained_on_it(gaussian, plans):
    cache = RowCache(4, gaussian.table.row_width, torch.device("cpu"))
    trainer = Trainer(gaussian, [cache], Alone(), torch.device("cpu"))
    labels = np.array([0.5, -3.0], np.float32)
    plan = replace(
        plans.plan(0, train=[(x, x, 0, 1) for x in range(4)]),
        batch_size=2,
        positions=np.arange(2, dtype=np.uint32),
        inverse=np.array([0, 1, 2, 3, 3, 2, 1, 0], np.uint32),
        dense=np.ones((2, 3), np.float32),
        labels=labels[:, None],
    )
    model = build_model(gaussian)
    outputs = model({str(at): torch.zeros(2, 5) for at in range(4)}, torch.ones(2, 3))
    expected = functional.gaussian_nll_loss(
        outputs[:, 0], torch.from_numpy(labels), (2 * outputs[:, 1]).exp(), reduction="sum"
    )
    result = trainer.step(plan)
    assert result.loss_sum == pytest.approx(expected.item())
    np.testing.assert_array_equal(
        result.score_bins.ravel(), (outputs[:, 0].detach().clamp(0, 1) * 65536).clamp(max=65535).int().numpy()
    )
    assert cache.rows.any()


def test_the_job_says_whose_loss_it_is(gaussian, make_job):
    """It decides which labels the dispatcher takes."""
    for loss in CASES:
        with pytest.raises(
            InvalidArgument, match=f"'gaussian' has a loss of its own: use --loss own, not {loss.value}"
        ):
            build_model(of_loss(gaussian, loss))
    with pytest.raises(InvalidArgument, match="'wdl' has no loss of its own: use another --loss, not own"):
        build_model(of_loss(make_job(), Loss.OWN))


class Wrong(Gaussian):
    def loss(self, outputs, batch):
        return super().loss(outputs, batch).mean()


class Pairwise(Gaussian):
    """A ranking loss of pairs: the loss of a sample depends on the others."""

    def loss(self, outputs, batch):
        margins = outputs[:, :1] - outputs[:, 0]
        return functional.softplus(-margins).mean(dim=1)


class Scoreless(Gaussian):
    def scores(self, outputs):
        return outputs


class Unbounded(Gaussian):
    def scores(self, outputs):
        return outputs[:, :1] - 7


class Bare(Gaussian):
    loss = Model.loss
    scores = Model.scores


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Wrong, r"`loss` of model 'own' makes torch.float32 \[\] of two samples, it must make \[2\]"),
        (Pairwise, "the loss of model 'own' depends on the other samples of its batch"),
        (Scoreless, r"`scores` of model 'own' makes torch.float32 \[2, 2\] of two samples, it must make \[2, 1\]"),
        (Unbounded, r"`scores` of model 'own' makes \[\[-.* they must be in 0..1"),
        (Bare, r"makes torch.float32 \[2, 2\] of two samples with 1 labels, it must make one .* or have a `loss`"),
    ],
)
def test_wrong_ones_are_refused(make_job, monkeypatch, model, message):
    monkeypatch.setitem(models.MODELS, "own", model)
    with pytest.raises(InvalidArgument, match=message):
        build_model(of_loss(make_job(model="own"), Loss.BCE if model is Bare else Loss.OWN))
