"""The exported dense part computes the scores of the model: torch.export's bit by bit, ONNX's nearly."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

import esd
from esd.model.network import OnnxNetwork, TorchNetwork
from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.features import Feature, Pooling
from esd.services.domain.losses import Loss
from esd.services.domain.tables import OptimizerSpec, TableSpec
from esd.services.wire.trained_models import DENSE, PARAMETERS, input_names
from esd.worker.graphs import dense_part, example_inputs, export
from esd.worker.models import MODELS, build_model
from esd.worker.models.graphs import TripleModel

SINGLES = (Feature("user"), Feature("item"), Feature("item.brand"), Feature("seen", pooling=Pooling.MEAN, max_length=4))
LISTS = (Feature("user"), Feature("item"), Feature("seen", pooling=Pooling.LIST, max_length=5))
TRIPLE = (Feature("head"), Feature("relation", table=1), Feature("tail"))
OWN = {
    "examples.visits.net:Net": SINGLES,
    "tests.support.list_model:Net": LISTS,
    "tests.support.price_model:PerPrice": SINGLES,
    "tests.support.running_model:Net": SINGLES,
}


def save_parameters(model, folder):
    save_file({name: values.numpy() for name, values in model.state_dict().items()}, folder / PARAMETERS)


@pytest.mark.parametrize("name", [*MODELS, *OWN])
def test_an_exported_model_computes_the_same_scores(make_job, tmp_path, name):
    of_graphs = name in MODELS and issubclass(MODELS[name], TripleModel)
    features = TRIPLE if of_graphs else OWN.get(name, LISTS if name == "tbsm" else SINGLES)
    second = 4 // MODELS[name].relation_share if of_graphs else 4
    tables = [TableSpec(each, dimension, OptimizerSpec(), 7, 0.1) for each, dimension in (("one", 4), ("two", second))]
    tables = tables[: 1 + max(each.table for each in features)]
    job = replace(make_job(model=name), features=features, tables=tuple(tables), labels=("clicked",))
    if of_graphs:
        job = replace(job, model=replace(job.model, loss=Loss.OWN))
    model = build_model(job)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) / 4)
    save_parameters(model, tmp_path)
    assert export(job, tmp_path) == {}

    part = dense_part(job, model.state_dict())
    program = torch.export.load(tmp_path / "model.pt2").module()
    names = [each for feature in features for each in input_names(feature)] + [DENSE]
    for samples, longest in ((1, 1), (5, 3), (300, 5)):
        inputs = example_inputs(part, job, samples, longest)
        with torch.no_grad():
            expected = part(*inputs)
            assert torch.equal(program(*inputs), expected)
        given = {name: value.numpy() for name, value in zip(names, inputs, strict=True)}
        np.testing.assert_allclose(OnnxNetwork(tmp_path / "model.onnx")(given), expected.numpy(), rtol=0, atol=1e-5)
        np.testing.assert_array_equal(TorchNetwork(tmp_path, job)(given), expected.numpy())
    if model.state_dict():  # the models of graphs have rows alone
        _check_other_parameters(job, model, tmp_path, given, inputs)


def _check_other_parameters(job, model, folder, given, inputs):
    """The files of a folder compute with other parameters in place of their own, as a model does that has these."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) / 4)
    part = dense_part(job, model.state_dict())
    with torch.no_grad():
        expected = part(*inputs).numpy()
    others = {name: values.numpy() for name, values in model.state_dict().items()}
    scores = OnnxNetwork(folder / "model.onnx", parameters=others)(given)
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-5)
    assert np.abs(OnnxNetwork(folder / "model.onnx")(given) - expected).max() > 1e-3, "they are other ones"
    np.testing.assert_array_equal(TorchNetwork(folder, job, others)(given), expected)
    with pytest.raises(FailedPrecondition, match="has no parameter 'another' of float32"):
        OnnxNetwork(folder / "model.onnx", parameters=others | {"another": np.zeros(3, np.float32)})
    name = next(iter(others))
    with pytest.raises(FailedPrecondition, match=f"has no parameter '{name}'"):
        OnnxNetwork(folder / "model.onnx", parameters=others | {name: others[name][None]})


class ByRank(esd.Model):
    """Has an operation that ONNX lacks."""

    def __init__(self, inputs, hidden):
        super().__init__(inputs, hidden)
        self.layer = torch.nn.Linear(inputs.width, 1)

    def forward(self, embeddings, dense):
        joined = torch.cat((*embeddings.values(), dense), dim=1)
        return self.layer(joined) + torch.special.bessel_j0(joined.detach()).sum(dim=1, keepdim=True)


class Untraceable(ByRank):
    """Decides by a value."""

    def forward(self, embeddings, dense):
        outputs = self.layer(torch.cat((*embeddings.values(), dense), dim=1))
        return outputs * (2 if outputs.sum() > 1e9 else 1)


@pytest.mark.parametrize(
    ("name", "missing"), [("ByRank", {"model.onnx"}), ("Untraceable", {"model.onnx", "model.pt2"})]
)
def test_a_file_that_cannot_be_made_has_a_reason(make_job, tmp_path, monkeypatch, name, missing):
    monkeypatch.setitem(sys.modules, "own_of_this_test", sys.modules[__name__])
    job = replace(make_job(model=f"own_of_this_test:{name}"), labels=("clicked",))
    save_parameters(build_model(job), tmp_path)
    reasons = export(job, tmp_path)
    assert set(reasons) == missing
    assert all(reasons.values())
    assert {path.name for path in tmp_path.iterdir()} == {PARAMETERS, "model.pt2", "model.onnx"} - missing
