"""Large layers that oneDNN multiplies are torch's own, up to rounding."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from esd.worker import models
from esd.worker.models import build_model, linear
from esd.worker.models.layers import mlp
from esd.worker.models.linear import OneDnnLinear
from esd.worker.models.model import Model

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")


@pytest.mark.parametrize("samples", [1, 16, 64, 70])
@pytest.mark.parametrize("bias", [True, False])
def test_values_and_gradients_are_those_of_torchs_own_layer(samples, bias):
    torch.manual_seed(3)
    own = nn.Linear(301, 256, bias=bias)
    ours = OneDnnLinear(301, 256, bias=bias)
    ours.load_state_dict(own.state_dict())
    inputs, gradients = torch.randn(samples, 301), torch.randn(samples, 256)
    results = []
    for layer in (own, ours):
        mine = inputs.clone().requires_grad_()
        outputs = layer(mine)
        outputs.backward(gradients)
        results.append((outputs.detach(), mine.grad, *(each.grad for each in layer.parameters())))
    for expected, got in zip(*results, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-4)


def test_inputs_of_another_shape_and_inputs_without_gradients_go_through():
    torch.manual_seed(3)
    layer = OneDnnLinear(256, 256)
    sequences = torch.randn(20, 3, 256)
    torch.testing.assert_close(layer(sequences), nn.functional.linear(sequences, layer.weight, layer.bias))
    layer(torch.randn(20, 256)).sum().backward()
    assert layer.weight.grad is not None
    with torch.no_grad():
        assert not layer(torch.randn(20, 256)).requires_grad


def test_a_loss_may_have_gradients_in_it():
    """Such as a penalty on them: the gradients of these are torch's own, too."""
    torch.manual_seed(3)
    own, ours = nn.Linear(301, 256), OneDnnLinear(301, 256)
    ours.load_state_dict(own.state_dict())
    inputs = torch.randn(20, 301)
    results = []
    for layer in (own, ours):
        mine = inputs.clone().requires_grad_()
        outputs = layer(mine).tanh().sum()
        (of_inputs,) = torch.autograd.grad(outputs, mine, create_graph=True)
        linear_part = torch.autograd.grad(layer(mine).sum(), mine, create_graph=True)[0]
        (outputs + of_inputs.square().sum() + linear_part.square().sum()).backward()
        results.append((mine.grad, *(each.grad for each in layer.parameters())))
    for expected, got in zip(*results, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-3)


def test_a_layer_of_another_type_is_torchs_own():
    layer = OneDnnLinear(256, 256).double()
    inputs = torch.randn(20, 256, dtype=torch.double)
    assert torch.equal(layer(inputs), nn.functional.linear(inputs, layer.weight, layer.bias))


class Large(Model):
    """Has one layer that is large enough, and one that is not."""

    def __init__(self, inputs, hidden):
        super().__init__(inputs, hidden)
        self.deep = mlp(inputs.width, (1 << 16, 1), 1)

    def forward(self, embeddings, dense):
        return self.deep(torch.cat((*embeddings.values(), dense), dim=1))


@pytest.mark.parametrize("slow", [True, False])
def test_large_layers_of_any_model_are_replaced_where_mkl_is_slow(make_job, monkeypatch, slow):
    monkeypatch.setitem(models.MODELS, "large", Large)
    monkeypatch.setattr(linear, "_mkl_is_slow", lambda: slow)
    job = replace(make_job(model="large"), seed=7)
    model = build_model(job)
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    assert [type(layer) is OneDnnLinear for layer in layers] == [slow, slow, False]
    monkeypatch.setattr(linear, "_mkl_is_slow", lambda: not slow)
    assert model.state_dict().keys() == build_model(job).state_dict().keys()
