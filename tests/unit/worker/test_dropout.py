"""The values that dropout drops are a function of seed, iteration and sample, on every worker."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from esd.services.domain.ids import mix64
from esd.worker import models
from esd.worker.models import build_model
from esd.worker.models.dropout import SampleDropout, Samples
from esd.worker.models.layers import mlp
from esd.worker.models.model import Model
from tests.support.reference import by_feature

P = 0.3


class Dropping(Model):
    """Drops twice by one module, in two places, and once by another."""

    def __init__(self, inputs, hidden):
        super().__init__(inputs, hidden)
        self.drop = nn.Dropout(P)
        self.deep = nn.Sequential(self.drop, nn.Dropout(P), *mlp(inputs.width, hidden, 1))

    def forward(self, embeddings, dense):
        return self.deep(self.drop(torch.cat((*embeddings.values(), dense), dim=1)))


@pytest.fixture
def job(make_job, monkeypatch):
    monkeypatch.setitem(models.MODELS, "dropping", Dropping)
    return make_job(model="dropping")


def dropout(seed=7, name="drop", p=P):
    samples = Samples()
    return SampleDropout(p, name, seed, samples), samples


def drops(module, samples, iteration, positions, values=1000):
    samples.begin(iteration, np.array(positions, np.uint32))
    return module(torch.ones(len(positions), values)) == 0


def test_the_draws_follow_their_formula():
    module, samples = dropout()
    samples.begin(5, np.array([9, 2], np.uint32))
    inputs = torch.randn(2, 3, 4)
    golden = 0x9E3779B97F4A7C15
    digest = hashlib.blake2b(b"7/drop", digest_size=8).digest()
    counters = np.arange(1, 13, dtype=np.uint64) * np.uint64(golden)
    for call in range(2):
        first = mix64(np.array([int.from_bytes(digest, "little") + call], np.uint64))
        keys = mix64(mix64(first ^ np.uint64(5)) ^ np.array([9, 2], np.uint64))
        kept = (mix64(keys[:, None] + counters) >> np.uint64(40)) >= round(P * 2**24)
        expected = inputs * torch.from_numpy(kept.reshape(2, 3, 4)) / (1 - P)
        torch.testing.assert_close(module(inputs), expected)


def test_a_share_of_p_is_dropped_and_what_differs_draws_anew():
    module, samples = dropout()
    one = drops(module, samples, 0, range(100))
    assert one.float().mean().item() == pytest.approx(P, abs=0.005)
    other = [
        drops(module, samples, 1, range(100)),
        drops(module, samples, 0, range(1, 101)),
        drops(*dropout(seed=8), 0, range(100)),
        drops(*dropout(name="deep.1"), 0, range(100)),
    ]
    for each in other:  # independent draws agree where both drop or both keep
        assert (one == each).float().mean().item() == pytest.approx(P**2 + (1 - P) ** 2, abs=0.01)
    assert torch.equal(one, drops(module, samples, 0, range(100)))


def test_nothing_is_dropped_outside_of_training_and_all_of_it_with_p_1():
    module, samples = dropout(p=1.0)
    samples.begin(0, np.zeros(2, np.uint32))
    assert not module(torch.ones(2, 3)).any()
    assert module.eval()(torch.ones(2, 3)).all()


def test_every_share_of_the_samples_has_the_gradient_of_one_machine(job):
    rows, dense = torch.randn(8, 4, 5), torch.randn(8, 3)

    def gradient(positions):
        model = build_model(job)
        model.samples.begin(3, np.array(positions, np.uint32))
        model(by_feature(job, rows[positions]), dense[positions]).square().sum().backward()
        return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])

    whole = gradient(list(range(8)))
    for shares in ([[0, 1, 2, 3], [4, 5, 6, 7]], [[6, 0], [1, 7], [5, 4], [3, 2]]):
        torch.testing.assert_close(sum(map(gradient, shares)), whole)
    different = build_model(replace(job, seed=8))
    different.load_state_dict(build_model(job).state_dict())
    different.samples.begin(3, np.arange(8, dtype=np.uint32))
    different(by_feature(job, rows), dense).square().sum().backward()
    assert not torch.allclose(different.deep[2].weight.grad.flatten(), whole[: different.deep[2].weight.numel()])


def test_a_module_that_stands_twice_is_replaced_twice(job):
    model = build_model(job)
    assert model.drop is model.deep[0]
    assert [type(each) for each in (model.drop, model.deep[1])] == [SampleDropout] * 2
