"""Models of one's own start as they initialise themselves, keep their buffers, and are refused before they harm."""

from __future__ import annotations

import io
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from esd.services.domain.errors import FailedPrecondition, InvalidArgument
from esd.services.domain.features import Feature, Pooling, numbered_ids
from esd.services.domain.jobs import ModelSpec
from esd.services.domain.losses import Loss
from esd.services.domain.tables import OptimizerKind, OptimizerSpec
from esd.worker import models
from esd.worker.models import build_model, trained_shapes
from esd.worker.models.inputs import StackedEmbeddings, join, stack
from esd.worker.models.layers import mlp
from esd.worker.models.model import Model
from esd.worker.training.dense import DenseParameters
from esd.worker.training.optimizers import JobOptimizer
from esd.worker.training.reducer import Alone


class Own(Model):
    """Layer norm, a scale, a constant table and a frozen parameter before an MLP."""

    def __init__(self, inputs, hidden):
        super().__init__(inputs, hidden)
        width = inputs.width
        self.norm = nn.LayerNorm(width)
        self.scale = nn.Parameter(torch.full((3,), 2.0))
        self.drawn = nn.Parameter(torch.randn(width))
        self.fixed = nn.Parameter(torch.ones(1), requires_grad=False)
        self.register_buffer("weights", torch.randn(width))
        self.register_buffer("scratch", torch.zeros(1), persistent=False)
        self.deep = mlp(width, hidden, 1)

    def forward(self, embeddings, dense):
        inputs = self.norm(join(embeddings, dense)) * self.drawn + self.weights
        return self.deep(inputs).squeeze(1) * self.scale.sum() * self.fixed


@pytest.fixture
def build(make_job, monkeypatch):
    """Builds a model class for a small job."""

    def build(model, seed=7, **changes):
        monkeypatch.setitem(models.MODELS, "own", model)
        features, loss = changes.pop("features", None), changes.pop("loss", Loss.BCE)
        job = replace(make_job(model="own", **changes), seed=seed)
        job = replace(job, model=replace(job.model, loss=loss))
        return build_model(job if features is None else replace(job, features=features))

    return build


def test_a_frozen_parameter_is_none_whose_gradients_are_summed(make_job, monkeypatch):
    monkeypatch.setitem(models.MODELS, "own", Own)
    shapes = trained_shapes(make_job(model="own"))
    named = dict(build_model(make_job(model="own")).named_parameters())
    assert shapes == tuple(tuple(each.shape) for name, each in named.items() if name != "fixed")


def test_the_initialisation_is_the_models_own_drawn_from_the_jobs_seed(build):
    before = torch.get_rng_state()
    model = build(Own)
    assert torch.equal(torch.get_rng_state(), before), "the global random state has moved"
    assert torch.equal(model.norm.weight, torch.ones(23))
    assert torch.equal(model.scale, torch.full((3,), 2.0))
    assert model.deep[0].bias.any()  # torch's own rule
    torch.rand(5)
    again, other = build(Own).state_dict(), build(Own, seed=8).state_dict()
    for name, values in model.state_dict().items():
        assert torch.equal(values, again[name]), name
    assert {name for name in again if not torch.equal(again[name], other[name])} >= {"drawn", "weights", "deep.0.bias"}
    assert all(parameter.grad is None for parameter in model.parameters())


def test_threads_that_build_at_a_time_build_the_same(build):
    """Two epochs may build models at the same time: both draw from the one generator of the process."""
    expected = build(Own).state_dict()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            built = list(threads.map(lambda _: build(Own).state_dict(), range(40)))
    finally:
        sys.setswitchinterval(interval)
    for values in built:
        assert all(torch.equal(values[name], expected[name]) for name in expected)


class Tied(Model):
    """Two layers with one weight, and a layer that is in two places."""

    def __init__(self, inputs, hidden):
        super().__init__(inputs, hidden)
        self.first, self.second = nn.Linear(inputs.width, inputs.width), nn.Linear(inputs.width, inputs.width)
        self.second.weight = self.first.weight
        self.out = self.same = nn.Linear(inputs.width, 1)
        self.first.register_buffer("scale", torch.full((1,), 3.0))
        self.second.register_buffer("scale", self.first.scale)

    def forward(self, embeddings, dense):
        return self.same(self.second(self.first(join(embeddings, dense)).relu())) * self.first.scale


def test_what_layers_share_is_trained_once_and_kept_under_all_its_names(build):
    model = build(Tied)
    dense = dense_of(model)
    assert len(dense.gradients) == sum(each.numel() for each in model.parameters())
    model(StackedEmbeddings(("0", "1", "2", "3"), torch.randn(2, 4, 5)), torch.randn(2, 3)).sum().backward()
    dense.wait()
    dense.step(0)
    assert model.second.weight is model.first.weight

    other = build(Tied, seed=8)
    dense_of(other).load(dense.save())
    exported = {name: torch.from_numpy(values) for name, values in np.load(io.BytesIO(dense.to_npz())).items()}
    for again in (other, build(Tied, seed=9)):
        if again is not other:
            again.load_state_dict(exported)
        for name, values in model.state_dict().items():
            assert torch.equal(values, again.state_dict()[name]), name


def dense_of(model):
    spec = ModelSpec("own", (), OptimizerSpec(OptimizerKind.ADAM, 0.01))
    return DenseParameters(model, Alone(), lambda buckets: JobOptimizer(buckets, spec, lambda _: 0.01))


def test_buffers_are_saved_loaded_and_exported(build):
    model = build(Own)
    saved = dense_of(model).save()
    exported = np.load(io.BytesIO(dense_of(model).to_npz()))
    assert set(exported) == set(model.state_dict())
    np.testing.assert_array_equal(exported["weights"], model.weights.numpy())

    other = build(Own, seed=8)
    dense = dense_of(other)
    dense.load(saved)
    for name, values in model.state_dict().items():
        assert torch.equal(values, other.state_dict()[name]), name
    with pytest.raises(FailedPrecondition, match="does not hold buffer/weights"):
        dense_of(build(Own, dense_features=2)).load(_without_parameters(saved))


def _without_parameters(saved):
    """A checkpoint that fits a smaller model but for its buffers."""
    small = {"norm.weight": 22, "norm.bias": 22, "drawn": 22}
    arrays = dict(np.load(io.BytesIO(saved)))
    arrays |= {f"parameter/{name}": np.zeros(size, np.float32) for name, size in small.items()}
    arrays["parameter/deep.0.weight"] = np.zeros((8, 22), np.float32)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def test_a_frozen_parameter_is_kept_and_not_trained(build):
    model = build(Own)
    dense = dense_of(model)
    model(StackedEmbeddings(("0", "1", "2", "3"), torch.randn(2, 4, 5)), torch.randn(2, 3)).sum().backward()
    dense.wait()
    dense.step(0)
    assert model.fixed.item() == 1.0
    assert len(dense.gradients) == sum(each.numel() for each in model.parameters()) - 1


def test_a_model_without_dense_parameters_trains_its_rows(build):
    class Sum(Model):
        def forward(self, embeddings, dense):
            return stack(embeddings).sum(dim=(1, 2))

    dense = dense_of(build(Sum))
    dense.wait()
    dense.step(0)
    assert dense.to_npz()


def with_layer(layer, apply=lambda layer, inputs: layer(inputs)):
    class Changed(Model):
        def __init__(self, inputs, hidden):
            super().__init__(inputs, hidden)
            self.layer = layer(4 * 5)
            self.deep = nn.Linear(4 * 5, 1)

        def forward(self, embeddings, dense):
            return self.deep(apply(self.layer, stack(embeddings).flatten(1))).squeeze(1)

    return Changed


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (with_layer(lambda _: nn.Linear(7, 3)), r"fails on samples of 4 features of 5 values, 3 dense .*7x3"),
        (with_layer(nn.BatchNorm1d), "buffer layer.running_mean of model 'own' changes in a forward pass"),
        (with_layer(lambda n: nn.BatchNorm1d(n, track_running_stats=False)), "fails .*more than 1 value per channel"),
        (with_layer(lambda _: nn.AlphaDropout()), "draws random numbers"),
        (
            with_layer(lambda _: nn.Dropout(), lambda drop, x: drop(x.T).T),
            r"layer gets \[20, 2\] of 2 samples: its first",
        ),
        (with_layer(lambda n: nn.Linear(n, n).double()), "parameter layer.weight of model 'own' is torch.float64"),
        (with_layer(nn.Identity, lambda _, x: x - x.mean(dim=0)), "depends on the other samples of its batch"),
        (with_layer(nn.Identity, lambda _, x: x * float("nan")), r"makes \[nan, nan\] of two samples"),
        (with_layer(nn.Identity, lambda _, x: x.detach()), "does not use its embedding rows"),
        (with_layer(nn.Identity, lambda _, x: x.repeat(2, 1)), r"makes torch.float32 \[4\] of two samples"),
    ],
    ids=[
        "shape",
        "batch norm",
        "batch statistics",
        "alpha dropout",
        "dropout across samples",
        "double",
        "batch mean",
        "nan",
        "no rows",
        "output",
    ],
)
def test_what_cannot_train_exactly_is_refused_by_name(build, model, message):
    with pytest.raises(InvalidArgument, match=message):
        build(model)


@pytest.mark.parametrize(
    ("pooled", "message"),
    [
        (lambda seen: seen.values.sum(dim=1), None),
        (lambda seen: seen.values.mean(dim=1), "depends on the other samples of its batch"),
        (lambda seen: seen.values.softmax(dim=1).sum(dim=2), r"fails on samples of 4 features.*RuntimeError"),
    ],
    ids=["sum", "mean over what is behind the end", "shape"],
)
def test_a_list_must_end_where_it_ends(build, pooled, message):
    class Lists(Model):
        def __init__(self, inputs, hidden):
            super().__init__(inputs, hidden)
            self.deep = nn.Linear(inputs.features[0].dimension, 1)

        def forward(self, embeddings, dense):
            return self.deep(pooled(embeddings["seen"]))

    seen = Feature("seen", pooling=Pooling.LIST, max_length=5)
    features = (*numbered_ids(3), seen)
    if message is None:
        assert build(Lists, features=features)
        return
    with pytest.raises(InvalidArgument, match=message):
        build(Lists, features=features)


class Positions(Model):
    """A score for each place of a list, as sequence models make: outputs are as long as the longest list."""

    masked = True

    def forward(self, embeddings, dense):
        seen = embeddings["seen"]
        scores = seen.values.sum(dim=2) + embeddings["0"].sum(dim=1, keepdim=True)
        return scores * seen.mask if self.masked else scores

    def loss(self, outputs, batch):
        return outputs.square().sum(dim=1)

    def scores(self, outputs):
        return outputs[:, :1].sigmoid()


class Padded(Positions):
    """The same, but the values after the end of a list count."""

    masked = False


@pytest.mark.parametrize(("model", "message"), [(Positions, None), (Padded, "the loss of model 'own' depends on")])
def test_outputs_may_be_as_long_as_the_longest_list(build, model, message):
    features = (*numbered_ids(1), Feature("seen", pooling=Pooling.LIST, max_length=5))
    if message is None:
        assert build(model, features=features, loss=Loss.OWN)
        return
    with pytest.raises(InvalidArgument, match=message):
        build(model, features=features, loss=Loss.OWN)
