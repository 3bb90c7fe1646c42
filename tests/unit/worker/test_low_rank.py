"""Gradients of low rank are the gradients of PowerSGD, on one worker as on several, also after a checkpoint."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch
from torch import Tensor, nn

from esd.services.domain.dense_sums import LowRank
from esd.worker.training.low_rank import LowRankGradients
from esd.worker.training.reducer import Alone

SHAPES = [(20, 30), (20,), (6, 20), (1, 6)]  # of rank 3 the second matrix is summed as it is
RANK, SEED, ITERATIONS = 3, 5, 6
FACTORED = 0


class Together:
    """Sums over the threads of one test."""

    def __init__(self, workers: int) -> None:
        self._barrier = Barrier(workers)
        self._given: list[list[Tensor]] = [[] for _ in range(workers)]

    def of(self, rank: int) -> Together:
        mine = Together.__new__(Together)
        mine.__dict__ |= self.__dict__ | {"_rank": rank, "waiting": False}
        return mine

    def begin(self, iteration: int) -> None:
        pass

    def start(self, gradients: Tensor, *, zeros: bool = False) -> None:
        self._given[self._rank].append(gradients)

    def wait(self) -> None:
        self._barrier.wait()
        sums = [torch.stack(each).sum(0) for each in zip(*self._given, strict=True)]
        self._barrier.wait()
        for mine, total in zip(self._given[self._rank], sums, strict=True):
            mine.copy_(total)
        self._given[self._rank].clear()
        self._barrier.wait()

    def close(self) -> None:
        pass


def parts_of(workers: int) -> list[list[list[Tensor]]]:
    """By iteration and worker, gradients whose sums do not depend on the number of workers; the last may have none."""
    random = torch.Generator().manual_seed(1)
    found = []
    for _ in range(ITERATIONS):
        whole = [torch.randn(shape, generator=random) for shape in SHAPES]
        shares = torch.rand(workers, generator=torch.Generator().manual_seed(7)) + 0.1
        shares /= shares.sum()
        found.append([[share * each for each in whole] for share in shares])
    return found


def formula() -> list[list[Tensor]]:
    """The gradients of PowerSGD, Algorithm 1 with one power iteration, by one machine."""
    random = torch.Generator().manual_seed(SEED)
    basis = torch.linalg.qr(torch.randn(SHAPES[FACTORED][1], RANK, generator=random, dtype=torch.float64))[0]
    error = torch.zeros(SHAPES[FACTORED], dtype=torch.float64)
    found = []
    for (whole,) in parts_of(1):
        matrix = whole[FACTORED].double() + error
        left = torch.linalg.qr(matrix @ basis)[0]
        right = matrix.T @ left
        trained = left @ right.T
        error = matrix - trained
        basis = torch.linalg.qr(right)[0]
        found.append([trained.float() if at == FACTORED else each for at, each in enumerate(whole)])
    return found


def new_gradients(reducer) -> LowRankGradients:
    return LowRankGradients(
        [nn.Parameter(torch.zeros(shape)) for shape in SHAPES], reducer, way=LowRank(RANK), seed=SEED
    )


def summed(gradients: LowRankGradients, given: list[Tensor]) -> list[Tensor]:
    """Gives gradients as a backward pass does, and returns the gradients to train."""
    if gradients.parameters and any(each.any() for each in given):
        losses = [(parameter * each).sum() for parameter, each in zip(gradients.parameters, given, strict=True)]
        torch.stack(losses).sum().backward()
    gradients.start()
    gradients.wait()
    return [place.clone() for place in gradients.places]


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_any_number_of_workers_trains_what_the_formula_says(workers: int) -> None:
    together, parts = Together(workers), parts_of(workers)

    def train(rank: int) -> list[list[Tensor]]:
        gradients = new_gradients(together.of(rank) if workers > 1 else Alone())
        return [summed(gradients, each[rank]) for each in parts]

    with ThreadPoolExecutor(workers) as threads:
        found = list(threads.map(train, range(workers)))
    for iteration, expected in enumerate(formula()):
        for of_worker in found:
            for mine, first, each in zip(of_worker[iteration], found[0][iteration], expected, strict=True):
                torch.testing.assert_close(mine, each, rtol=1e-4, atol=1e-5)
                assert torch.equal(mine, first), "the same bits on every worker"


def test_errors_are_one_workers_after_a_checkpoint_and_the_others_begin_without() -> None:
    """And a job of another number of workers goes on from there."""
    two, parts, at = Together(2), parts_of(2), 3

    def train(rank: int):
        gradients = new_gradients(two.of(rank))
        for each in parts[:at]:
            summed(gradients, each[rank])
        gradients.gather({}, leads=rank == 0)
        saved = {name: values.clone().numpy() for name, values in gradients.state.items()}
        return saved, [summed(gradients, each[rank]) for each in parts[at:]]

    with ThreadPoolExecutor(2) as threads:
        (saved, rest), (of_other, _) = threads.map(train, range(2))
    assert not of_other[f"low-rank/error/{FACTORED}"].any()
    alone = new_gradients(Alone())
    alone.load(saved)
    for expected, found, (whole,) in zip(formula()[at:], rest, parts_of(1)[at:], strict=True):
        for each, one, several in zip(expected, summed(alone, whole), found, strict=True):
            torch.testing.assert_close(one, each, rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(several, each, rtol=1e-4, atol=1e-5)


def test_a_state_of_another_way_or_rank_begins_anew() -> None:
    gradients, fresh = new_gradients(Alone()), new_gradients(Alone())
    gradients.load({})
    other = LowRankGradients([nn.Parameter(torch.zeros(SHAPES[0]))], Alone(), way=LowRank(2), seed=9)
    gradients.load({name: values.numpy() for name, values in other.state.items() if "basis" in name})
    for name, values in gradients.state.items():
        assert torch.equal(values, fresh.state[name])


def test_a_model_without_matrices_or_parameters_is_summed_as_it_is() -> None:
    gradients = LowRankGradients([nn.Parameter(torch.zeros(4))], Alone(), way=LowRank(1), seed=0)
    assert [each.tolist() for each in summed(gradients, [torch.tensor([1.0, 2, 3, 4])])] == [[1, 2, 3, 4]]
    nothing = LowRankGradients([], Alone(), way=LowRank(1), seed=0)
    nothing.start()
    nothing.wait()
    nothing.gather({}, leads=True)
