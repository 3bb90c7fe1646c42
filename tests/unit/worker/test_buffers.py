"""Buffers that change: the rules, the refusals, and the values after an iteration."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from esd.services.domain.errors import InvalidArgument
from esd.worker import models
from esd.worker.models import build_model
from esd.worker.models.inputs import join
from esd.worker.models.model import Model
from esd.worker.training.reducer import Alone
from esd.worker.training.shared_buffers import SharedBuffers


class Buffered(Model):
    """Sums its inputs and counts its steps; each test has another way to change its buffers."""

    change = None

    def __init__(self, inputs, hidden):
        super().__init__(inputs, hidden)
        self.register_buffer("total", torch.zeros(inputs.width))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.register_buffer("passing", torch.zeros(1), persistent=False)
        self.register_buffer("known", torch.zeros(1, dtype=torch.bool))
        self.deep = nn.Linear(inputs.width, 1)

    def forward(self, embeddings, dense):
        inputs = join(embeddings, dense)
        outputs = self.deep(inputs).squeeze(1) + 0 * self.total.sum() + 0 * self.steps
        type(self).change(self, inputs)
        return outputs


def model_with(rules, change):
    return type("Changed", (Buffered,), {"buffer_rules": rules, "change": staticmethod(change)})


@pytest.fixture
def build(make_job, monkeypatch):
    def build(rules, change):
        monkeypatch.setitem(models.MODELS, "own", model_with(rules, change))
        return build_model(replace(make_job(model="own"), seed=7))

    return build


def add_up(model, inputs):
    if model.training:
        model.total = model.total + inputs.detach().sum(dim=0)
        model.steps += 1


GOOD = {"total": "sum", "steps": "lead"}


def average(model, inputs):
    model.total = 0.9 * model.total + 0.1 * inputs.detach().mean(dim=0)


@pytest.mark.parametrize(
    ("rules", "change", "message"),
    [
        ({}, add_up, "buffer total of model 'own' changes in a forward pass.*buffer_rules"),
        ({"total": "mean"}, add_up, "the rule of buffer total is 'mean', there are 'sum' and 'lead'"),
        (
            {"totals": "sum"},
            add_up,
            "buffer_rules names 'totals', the model's buffers are total, steps, passing, known",
        ),
        ({"passing": "sum"}, add_up, "buffer passing changes and is not persistent"),
        ({"known": "sum"}, add_up, "buffer known changes and is torch.bool"),
        ({"total": "sum"}, average, "buffer total of model 'own' has the rule 'sum', but the change by two samples"),
        ({"total": "lead"}, average, "total of model 'own' has the rule 'lead', so its change must not depend"),
        (GOOD | {"total": "lead"}, add_up, "total of model 'own' has the rule 'lead'"),
        (GOOD | {"steps": "sum"}, add_up, "buffer steps of model 'own' has the rule 'sum'"),
        (
            {"total": "sum"},
            lambda model, inputs: setattr(model, "total", model.total + inputs.detach().sum(dim=0)),
            "buffer total of model 'own' changes in an evaluation",
        ),
        (
            {"total": "sum"},
            lambda model, inputs: setattr(model, "total", model.total + inputs.sum(dim=0)),
            "buffer total of model 'own' becomes part of the gradient",
        ),
        (
            {"total": "sum"},
            lambda model, inputs: setattr(model, "total", torch.cat((model.total, inputs.detach()[0]))),
            r"buffer total of model 'own' is torch.float32 \[23\] and becomes torch.float32 \[46\]",
        ),
    ],
)
def test_what_a_rule_does_not_take_is_refused_by_name(build, rules, change, message) -> None:
    with pytest.raises(InvalidArgument, match=message):
        build(rules, change)


def test_a_model_is_as_it_was_after_its_trial(build) -> None:
    model = build(GOOD, add_up)
    assert model.training
    assert not model.total.any()
    assert model.steps == 0


@pytest.mark.parametrize("leads", [True, False])
def test_an_iteration_changes_them_when_all_agree(build, leads) -> None:
    model = build(GOOD, add_up)
    total = model.total
    shared = SharedBuffers(model, Alone())
    inputs = {str(at): torch.ones(3, 5) for at in range(4)}
    for iteration in range(2):
        shared.keep()
        model(inputs, torch.ones(3, 3))
        shared.restore()
        assert model.steps == (iteration if leads else 0), "others have not been asked yet"
        shared.start(leads=leads)
        shared.finish()
    assert model.total is total, "checkpoints and exports have another tensor"
    assert torch.equal(total, torch.full((23,), 6.0))
    assert model.steps == (2 if leads else 0)


def test_a_worker_without_samples_changes_nothing(build) -> None:
    model = build(GOOD, add_up)
    shared = SharedBuffers(model, Alone())
    shared.keep()
    shared.restore()
    shared.start(leads=False)
    shared.finish()
    assert not model.total.any()


def test_an_iteration_that_is_never_summed_leaves_them(build) -> None:
    """As when another worker is lost meanwhile."""
    model = build(GOOD, add_up)
    shared = SharedBuffers(model, Alone())
    shared.keep()
    model({str(at): torch.ones(3, 5) for at in range(4)}, torch.ones(3, 3))
    shared.restore()
    assert not model.total.any()
    assert model.steps == 0
