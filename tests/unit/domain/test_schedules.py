"""Schedules of learning rates: the factors of torch's schedulers, and the schedules that are refused."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch.optim import lr_scheduler

from esd.run.schedules import parse_schedule
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.schedules import CONSTANT, Decay, Schedule

ITERATIONS = 400


def torch_factors(make) -> list[float]:
    """The rates of a torch scheduler that starts at 1, iteration by iteration."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = make(optimizer)
    factors = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nothing is trained here
        for _ in range(ITERATIONS):
            factors.append(optimizer.param_groups[0]["lr"])
            scheduler.step()
    return factors


@pytest.mark.parametrize(
    ("schedule", "make"),
    [
        (CONSTANT, lambda o: lr_scheduler.ConstantLR(o, factor=1.0)),
        (Schedule(warm_up=20), lambda o: lr_scheduler.LinearLR(o, start_factor=1 / 20, total_iters=19)),
        (Schedule(Decay.STEP, 0, 70, 0.3), lambda o: lr_scheduler.StepLR(o, 70, gamma=0.3)),
        (Schedule(Decay.COSINE, 0, ITERATIONS, 0.1), lambda o: lr_scheduler.CosineAnnealingLR(o, ITERATIONS, 0.1)),
        (
            Schedule(Decay.COSINE, 50, ITERATIONS, 0.0),
            lambda o: lr_scheduler.SequentialLR(
                o,
                [lr_scheduler.LinearLR(o, 1 / 50, total_iters=49), lr_scheduler.CosineAnnealingLR(o, ITERATIONS - 50)],
                [50],
            ),
        ),
    ],
    ids=["constant", "warm-up", "step", "cosine", "warm-up, cosine"],
)
def test_factors_are_those_of_torch(schedule: Schedule, make) -> None:
    factors = [schedule.factor(iteration) for iteration in range(ITERATIONS)]
    np.testing.assert_allclose(factors, torch_factors(make), rtol=1e-9, atol=1e-12)


def test_a_cosine_stays_at_its_share_after_its_end() -> None:
    schedule = Schedule(Decay.COSINE, 3, 10, 0.25)
    assert [schedule.factor(iteration) for iteration in (10, 11, 10**9)] == [0.25] * 3


def test_rates_are_those_of_the_steps() -> None:
    schedule = Schedule(Decay.STEP, 2, 3, 0.5)
    steps = np.array([7, 1, 4, 4, 2], np.int64)
    expected = np.array([0.1 * schedule.factor(int(step) - 1) for step in steps], np.float32)
    np.testing.assert_array_equal(schedule.rates(0.1, steps), expected)
    assert schedule.rates(0.1, steps).dtype == np.float32
    assert schedule.rates(0.1, steps[:0]).shape == (0,)


@pytest.mark.parametrize(
    ("text", "schedule"),
    [
        ("constant", CONSTANT),
        ("warm-up:7", Schedule(warm_up=7)),
        ("cosine", Schedule(Decay.COSINE, 0, 900, 0.0)),
        ("cosine:40", Schedule(Decay.COSINE, 0, 40, 0.0)),
        ("warm-up:5, cosine:40:0.1", Schedule(Decay.COSINE, 5, 40, 0.1)),
        ("step:10:0.5,warm-up:2", Schedule(Decay.STEP, 2, 10, 0.5)),
    ],
)
def test_schedules_are_read_as_they_are_written(text: str, schedule: Schedule) -> None:
    assert parse_schedule(text, iterations=900) == schedule


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("linear:5", "'linear:5' is unknown; it is constant, cosine"),
        ("cosine:soon", "'cosine:soon' is unknown"),
        ("step:10", "'step:10' is unknown"),
        ("warm-up:1:2", "'warm-up:1:2' is unknown"),
        ("cosine:9,step:3:0.5", "has two parts of one kind"),
        ("cosine", "needs the number of iterations"),
        ("warm-up:9,cosine:9", "9 iterations ends before it begins: give more than the 9 of the warm-up"),
        ("step:0:0.5", "ends before it begins"),
        ("step:5:1.5", "share of a schedule is 1.5"),
        ("step:5:nan", "share of a schedule is nan"),
        ("warm-up:-1", "warm-up is -1 iterations"),
    ],
)
def test_what_is_no_schedule_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        parse_schedule(text, iterations=None)
