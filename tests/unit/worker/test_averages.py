"""Averages of dense parameters: each worker trains by its own samples, and counts by them in the average."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

import pytest
import torch
from torch import Tensor, nn

from esd.services.domain.dense_sums import Every, ServerSum
from esd.services.domain.errors import Unavailable
from esd.services.domain.reports import MOST_DRIFT
from esd.worker.training.averages import AveragedParameters
from esd.worker.training.gradient_buckets import GradientBuckets
from esd.worker.training.reducer import Alone
from esd.worker.training.summed_gradients import gradients_of
from tests.unit.worker.test_low_rank import Together

SAMPLES = [3, 1, 0]  # of the workers, in each iteration
RATE = 0.5
T = TypeVar("T")


def on_all(workers: int, run: Callable[[int], T]) -> list[T]:
    with ThreadPoolExecutor(workers) as threads:
        return list(threads.map(run, range(workers)))


class Worker:
    """Trains the mean of the squared distances to its samples' targets by SGD, with a moment of its own."""

    def __init__(self, reducer, interval: int) -> None:
        self.parameter = nn.Parameter(torch.zeros(2))
        self.gradients = AveragedParameters([self.parameter], reducer, way=Every(interval))
        self.moment = torch.zeros(2)
        self.steps = torch.zeros(())

    @property
    def state(self) -> dict[str, Tensor]:
        return {"moment": self.moment, "step": self.steps}

    def train(self, iteration: int, targets: list[float]) -> Tensor:
        """Returns the gradient that it has trained."""
        self.gradients.begin(len(targets), sum(SAMPLES))
        if targets:
            losses = [(self.parameter - target).square().sum() / 2 for target in targets]
            (torch.stack(losses).sum() / sum(SAMPLES)).backward()
        self.gradients.start()
        self.gradients.wait()
        gradient = self.gradients.flat.clone()
        with torch.no_grad():
            self.parameter -= RATE * gradient
            self.moment += gradient
            self.steps += 1
        self.gradients.trained(iteration, self.state)
        return gradient


def targets_of(rank: int, iteration: int) -> list[float]:
    return [float(10 * iteration + 3 * rank + at) for at in range(SAMPLES[rank])]


def test_a_worker_trains_the_mean_gradient_of_its_own_samples_and_zeros_without_any() -> None:
    together = Together(3)
    found = on_all(3, lambda rank: Worker(together.of(rank), 5).train(0, targets_of(rank, 0)))
    assert [each.tolist() for each in found] == [[-1.0, -1.0], [-3.0, -3.0], [0.0, 0.0]]


def test_an_average_counts_each_worker_by_its_samples_and_has_the_moments_but_not_the_count_of_steps() -> None:
    together = Together(3)

    def train(rank: int) -> Worker:
        worker = Worker(together.of(rank), 2)
        for iteration in range(2):
            worker.train(iteration, targets_of(rank, iteration))
        return worker

    def alone(rank: int) -> Worker:
        worker = Worker(Together(1).of(0), 5)
        for iteration in range(2):
            worker.train(iteration, targets_of(rank, iteration))
        return worker

    first, *others = on_all(3, train)
    own = [alone(rank) for rank in range(3)]
    mean = sum(count * each.parameter.detach() for count, each in zip(SAMPLES, own, strict=True)) / sum(SAMPLES)
    moment = sum(count * each.moment for count, each in zip(SAMPLES, own, strict=True)) / sum(SAMPLES)
    torch.testing.assert_close(first.parameter.detach(), mean)
    torch.testing.assert_close(first.moment, moment)
    assert first.steps == 2
    for each in others:
        assert torch.equal(each.parameter, first.parameter)
        assert torch.equal(each.moment, first.moment)
    drifts = [(each.parameter.detach() - mean).norm() / mean.norm() for each in own]
    found = [each.gradients.take_drift() for each in (first, *others)]
    assert found == pytest.approx([each.item() for each in drifts])
    assert first.gradients.take_drift() == 0, "it is told once"


def test_an_average_in_each_iteration_is_the_step_of_one_machine() -> None:
    together = Together(3)

    def train(rank: int) -> Tensor:
        worker = Worker(together.of(rank), 1)
        for iteration in range(4):
            worker.train(iteration, targets_of(rank, iteration))
        return worker.parameter.detach()

    expected = torch.zeros(2)
    for iteration in range(4):
        every = [target for rank in range(3) for target in targets_of(rank, iteration)]
        expected -= RATE * (expected - sum(every) / len(every))
    for found in on_all(3, train):
        torch.testing.assert_close(found, expected)


def test_a_checkpoint_and_the_end_average_what_was_trained_since_the_last_average_and_nothing_twice() -> None:
    together = Together(3)

    def train(rank: int) -> list[Tensor]:
        worker, found = Worker(together.of(rank), 3), []
        for iteration in range(4):
            worker.train(iteration, targets_of(rank, iteration))
        worker.gradients.gather(worker.state, leads=rank == 0)
        found.append(worker.parameter.detach().clone())
        worker.gradients.settle(worker.state)
        return [*found, worker.parameter.detach().clone()]

    (first, again), *others = on_all(3, train)
    assert torch.equal(first, again)
    assert all(torch.equal(each, first) for found in others for each in found)


def test_a_drift_that_is_no_number_is_the_most_that_there_is() -> None:
    together = Together(2)

    def train(rank: int) -> float:
        worker = Worker(together.of(rank), 1)
        worker.train(0, [float("inf")] if rank else [1.0])
        return worker.gradients.take_drift()

    assert on_all(2, train) == [MOST_DRIFT, MOST_DRIFT]


def test_every_iteration_has_a_sum_as_its_barrier() -> None:
    class Lost(Alone):
        def wait(self) -> None:
            raise Unavailable("a worker is lost")

    with pytest.raises(Unavailable, match="a worker is lost"):
        Worker(Lost(), 100).train(0, [1.0])


@pytest.mark.parametrize("way", [Every(4), ServerSum()])
def test_a_single_worker_trains_as_without_the_option(make_job, way) -> None:
    job = replace(make_job(), dense_sum=way)
    assert type(gradients_of(job)([nn.Parameter(torch.zeros(1))], Alone())) is GradientBuckets
