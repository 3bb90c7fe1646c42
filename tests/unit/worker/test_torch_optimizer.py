"""An optimizer of torch goes through a checkpoint with its state and hyperparameters."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from esd.services.domain.dense_sums import Every
from esd.services.domain.errors import InvalidArgument
from esd.session import OwnModel
from esd.worker.training.reducer import Alone
from tests.support.simple_clients import job_with

CPU = torch.device("cpu")
OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.1),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=torch.tensor(0.1), betas=(0.8, 0.9)),
}


def net_of(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))


def train(net, dense, optimizer, steps, seed):
    generator = torch.Generator().manual_seed(seed)
    for iteration in range(steps):
        net(torch.randn(5, 3, generator=generator)).square().sum().backward()
        dense.wait()
        dense.step(iteration)
        for group in optimizer.param_groups:  # a schedule
            group["lr"] = group["lr"] * 0.9


def values_of(net):
    return torch.cat([each.detach().flatten() for each in net.parameters()])


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_training_goes_on_from_a_checkpoint_as_if_nothing_had_happened(kind):
    nets = [net_of(1), net_of(1)]
    optimizers = [OPTIMIZERS[kind](net.parameters()) for net in nets]
    own = [OwnModel(net, optimizer) for net, optimizer in zip(nets, optimizers, strict=True)]
    one, other = (each.of_epoch(job_with(), Alone(), CPU) for each in own)
    train(nets[0], one, optimizers[0], 3, seed=1)
    saved = one.save()
    train(nets[0], one, optimizers[0], 3, seed=2)
    train(nets[1], other, optimizers[1], 2, seed=9)  # whatever it holds is replaced
    other.load(saved)
    train(nets[1], other, optimizers[1], 3, seed=2)
    assert torch.equal(values_of(nets[0]), values_of(nets[1]))
    assert other.save() == one.save()


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_an_epoch_without_a_checkpoint_begins_as_the_first_one(kind):
    net = net_of(1)
    optimizer = OPTIMIZERS[kind](net.parameters())
    own = OwnModel(net, optimizer)
    found = []
    for _ in range(2):
        dense = own.of_epoch(job_with(), Alone(), CPU)
        train(net, dense, optimizer, 3, seed=1)
        found.append(values_of(net))
    assert torch.equal(*found)


def test_a_job_that_averages_parameters_is_refused_since_it_cannot_average_this_state():
    net = net_of(1)
    own = OwnModel(net, torch.optim.SGD(net.parameters(), lr=0.1))
    with pytest.raises(InvalidArgument, match="--dense every:8 averages the state of the job's own optimizers"):
        own.of_epoch(replace(job_with(), dense_sum=Every(8)), Alone(), CPU)


def test_an_optimizer_of_other_parameters_is_refused():
    with pytest.raises(InvalidArgument, match="4 of the optimizer's 4 parameters are none of the model's"):
        OwnModel(net_of(1), torch.optim.SGD(net_of(1).parameters(), lr=0.1))
