"""The dense gradients are summed in buckets: the same ones in the same order on every worker, with any samples."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch
from torch import nn
from torch.distributed import HashStore, ProcessGroupGloo

from esd.worker.training import gradient_buckets
from esd.worker.training.all_reduce import RingReducer
from esd.worker.training.gradient_buckets import GradientBuckets
from tests.support.free_link import FreeLink


@pytest.fixture(autouse=True)
def small_buckets(monkeypatch):
    monkeypatch.setattr(gradient_buckets, "_BUCKET_BYTES", 4 * 40)


class Layers(nn.Module):
    """Three layers of 6 x 6 + 6 values; the last one uses the values that `unused` leaves of them."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))

    def forward(self, inputs, skip=None):
        for at, layer in enumerate(self.layers):
            inputs = inputs if at == skip else torch.relu(layer(inputs) + 1)
        return inputs.sum()


class Recorder:
    """Notes the sums that are started."""

    def __init__(self):
        self.sizes = []

    def allreduce(self, tensors):
        self.sizes.append(tensors[0].numel())
        return self

    def wait(self, within=None):
        pass


def test_a_bucket_starts_while_the_layers_before_it_are_to_come():
    model, recorder, seen = Layers(), Recorder(), []
    buckets = GradientBuckets(list(model.parameters()), RingReducer(recorder, 2, FreeLink()))
    model.layers[0].weight.register_hook(lambda _: seen.append(list(recorder.sizes)))
    model(torch.ones(2, 6)).backward()
    assert seen == [[42, 42]]
    assert recorder.sizes == [42, 42, 42]
    buckets.wait()
    assert recorder.sizes == [42, 42, 42]


@pytest.mark.parametrize("skip", [0, 1, 2, "all"])
def test_the_order_is_the_same_when_gradients_are_missing(skip):
    model, recorder = Layers(), Recorder()
    parameters = list(model.parameters())
    buckets = GradientBuckets(
        [*parameters[:2], nn.Parameter(torch.zeros(7)), *parameters[2:]], RingReducer(recorder, 2, FreeLink())
    )
    for _ in range(2):  # what is missing leaves nothing behind
        recorder.sizes.clear()
        buckets.flat.fill_(5.0)
        if skip != "all":
            model(torch.ones(2, 6), skip).backward()
        buckets.wait()
        assert recorder.sizes == [42, 42, 49]
        layers = [buckets.flat[begin : begin + 42] for begin in (0, 49, 91)]
        assert [bool(layer.any()) for layer in layers] == [skip not in ("all", at) for at in range(3)]
        assert not buckets.flat[42:49].any()


def test_a_model_without_parameters_sums_nothing():
    recorder = Recorder()
    GradientBuckets([], RingReducer(recorder, 2, FreeLink())).wait()
    assert recorder.sizes == []


def test_the_sums_are_the_same_bits_on_every_worker():
    """Three workers, one without samples; their gradients add up to the gradient of all samples."""
    workers, store = 3, HashStore()
    torch.manual_seed(4)
    model = Layers()
    samples = torch.randn(8, 6)
    parts = [samples[:5], samples[5:], samples[:0]]

    def summed(rank):
        mine = Layers()
        mine.load_state_dict(model.state_dict())
        group = ProcessGroupGloo(store, rank, workers, timedelta(seconds=60))
        buckets = GradientBuckets(list(mine.parameters()), RingReducer(group, workers, FreeLink()))
        for _ in range(2):
            if len(parts[rank]):
                mine(parts[rank]).backward()
            buckets.wait()
        return buckets.flat

    with ThreadPoolExecutor(workers) as threads:
        sums = list(threads.map(summed, range(workers)))
    assert all(torch.equal(each, sums[0]) for each in sums)
    model(samples).backward()
    torch.testing.assert_close(sums[0], torch.cat([each.grad.flatten() for each in model.parameters()]))
