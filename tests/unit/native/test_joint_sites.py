"""The joint search with sites against a plain reference, in which the workers of other sites are forbidden."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from esd.native.engine import Engine


def int32(values: object) -> np.ndarray:
    return np.asarray(values, np.int32)


def _instance(rng: np.random.Generator, workers: int) -> tuple[Engine, np.ndarray, np.ndarray, np.ndarray]:
    """Returns an engine with a prepared batch and caches in use, sites of samples and workers, and capacities."""
    engine = Engine([200] * workers, "emark")
    for _ in range(4):
        engine.prepare(rng.integers(0, 60, (16, 3)).astype(np.uint64))
        engine.commit(int32(rng.permutation(np.arange(16) % workers)))
    count = int(rng.integers(1, 4))
    of_workers = int32(np.concatenate((np.arange(count), rng.integers(0, count, workers - count))))
    of_samples = int32(rng.integers(0, count, 24))
    capacities = np.zeros(workers, np.int32)
    for site in of_samples:
        capacities[rng.choice(np.flatnonzero(of_workers == site))] += 1
    return engine, of_samples, of_workers, capacities


@pytest.mark.parametrize("workers", [4, 7, 12])
def test_the_first_round_is_the_optimum_with_workers_of_other_sites_forbidden(workers: int) -> None:
    """Samples without shared rows have the costs of the matrix, so one round is the whole problem."""
    rng = np.random.default_rng(workers)
    for _ in range(20):
        engine, of_samples, of_workers, capacities = _instance(rng, workers)
        # Half of the rows are known to the engine, and no two samples have the same.
        ids = rng.permutation(120)[: 24 * 3].reshape(24, 3).astype(np.uint64)
        engine.prepare(ids)
        links = int32(rng.integers(1, 12, workers))
        every = engine.joint(links, capacities, 5, wide_rounds=0, narrow_rounds=0)[1]  # a bound from below
        assignment, cost, start, _ = engine.joint(
            links, capacities, 5, wide_rounds=0, narrow_rounds=0, sites=(of_samples, of_workers)
        )
        assert (of_workers[assignment] == of_samples).all()
        assert np.bincount(assignment, minlength=workers).tolist() == capacities.tolist()
        assert cost == start >= every - 1e-9
        price = np.array([[_alone(engine, ids, links, row, worker) for worker in range(workers)] for row in range(24)])
        forbidden = of_samples[:, None] != of_workers[None, :]
        places = np.repeat(np.arange(workers), capacities)
        matrix = np.where(forbidden, 1e9, price)[:, places]
        rows, columns = linear_sum_assignment(matrix)
        assert price[np.arange(24), assignment].sum() == pytest.approx(matrix[rows, columns].sum())


def _alone(engine: Engine, ids: np.ndarray, links: np.ndarray, row: int, worker: int) -> float:
    """Returns the cost of one sample at one worker, as the engine counts it in a batch without other samples."""
    engine.prepare(ids[row : row + 1])
    capacities = np.zeros(len(links), np.int32)
    capacities[worker] = 1
    cost = engine.joint(links, capacities, 0)[1]
    engine.prepare(ids)
    return cost


@pytest.mark.parametrize("workers", [4, 7, 12])
def test_the_search_keeps_sites_and_is_never_dearer_than_its_start(workers: int) -> None:
    rng = np.random.default_rng(100 + workers)
    better = 0
    for _ in range(30):
        engine, of_samples, of_workers, capacities = _instance(rng, workers)
        engine.prepare(rng.integers(0, 60, (24, 3)).astype(np.uint64))
        links = int32(rng.integers(1, 12, workers))
        assignment, cost, start, _ = engine.joint(links, capacities, 9, sites=(of_samples, of_workers))
        assert (of_workers[assignment] == of_samples).all()
        assert np.bincount(assignment, minlength=workers).tolist() == capacities.tolist()
        assert cost <= start
        better += cost < start
    assert better > 10


def test_one_site_is_no_site() -> None:
    rng = np.random.default_rng(8)
    engine, *_ = _instance(rng, 4)
    engine.prepare(rng.integers(0, 60, (24, 3)).astype(np.uint64))
    links, capacities = int32([1, 2, 3, 10]), int32([6] * 4)
    with_one = engine.joint(links, capacities, 4, sites=(int32([0] * 24), int32([0] * 4)))
    without = engine.joint(links, capacities, 4)
    assert with_one[0].tolist() == without[0].tolist()
    assert with_one[1:] == without[1:]


@pytest.mark.parametrize(
    ("of_samples", "of_workers", "message"),
    [
        ([0, 0, 0, 0], [0, 1], "site 0 has 2 samples more than the capacities of its workers"),
        ([0, 2, 1, 1], [0, 1], "a sample is of site 2, there are 2"),
        ([0, 0, 1, 1], [0, -1], "a worker is of site -1, there are 1|a sample is of site 1, there are 1"),
    ],
)
def test_sites_that_do_not_fit_are_refused(of_samples: list[int], of_workers: list[int], message: str) -> None:
    engine = Engine([50, 50], "emark")
    engine.prepare(np.arange(4, dtype=np.uint64).reshape(4, 1))
    with pytest.raises(ValueError, match=message):
        engine.joint(int32([1, 1]), int32([2, 2]), 0, sites=(int32(of_samples), int32(of_workers)))
