"""HybridDis over gRPC: the answer is the solver's, and many calls at a time are fine."""

import asyncio
from typing import Any

import numpy as np
import pytest

import esd
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.mechanisms import Criterion
from tests.support.simple_clients import Dispatcher


async def test_optimum_of_a_small_matrix(dispatcher: Dispatcher) -> None:
    costs = np.array([[1, 9], [2, 3], [1, 2], [8, 9]], np.int32)
    result = await dispatcher.client.hybrid_dis(costs, np.array([2, 2], np.int32), alpha=1.0)
    assert result.assignment.tolist() == [0, 1, 1, 0] or result.cost == 14
    assert result.cost == costs[np.arange(4), result.assignment].sum() == 14
    assert result.optimal_rows.tolist() == [0, 1, 2, 3]
    assert (result.solver, result.gap) == ("dual", 0)
    assert result.seconds > 0


@pytest.mark.parametrize("criterion", list(Criterion))
async def test_share_of_the_exact_solver(dispatcher: Dispatcher, criterion: Criterion) -> None:
    costs = np.random.default_rng(3).random((40, 4), dtype=np.float32)
    capacities = np.array([10, 10, 10, 10], np.int32)
    result = await dispatcher.client.hybrid_dis(costs, capacities, alpha=0.5, criterion=criterion)
    assert np.bincount(result.assignment, minlength=4).tolist() == capacities.tolist()
    assert len(result.optimal_rows) == 20
    assert result.cost == pytest.approx(float(costs[np.arange(40), result.assignment].sum()), rel=1e-6)


async def test_many_calls_at_a_time(dispatcher: Dispatcher) -> None:
    rng = np.random.default_rng(5)
    matrices = [rng.integers(0, 100, (64, 4), dtype=np.int32) for _ in range(20)]
    capacities = np.full(4, 16, np.int32)
    together = await asyncio.gather(*(dispatcher.client.hybrid_dis(costs, capacities) for costs in matrices))
    for costs, result in zip(matrices, together, strict=True):
        alone = await dispatcher.client.hybrid_dis(costs, capacities)
        assert alone.assignment.tolist() == result.assignment.tolist()


async def test_client_refuses_other_dtypes(dispatcher: Dispatcher) -> None:
    named = r"costs are float64 \[4, 2\], they must be float32 or integers: np.float32\(costs\) rounds them"
    with pytest.raises(InvalidArgument, match=named):
        await dispatcher.client.hybrid_dis(np.ones((4, 2)), np.array([2, 2], np.int32))


@pytest.mark.parametrize(
    ("choice", "named"),
    [
        ({"alpha": "half"}, "alpha is half, it must be in 0..1"),
        ({"alpha": 1.5}, "alpha is 1.5, it must be in 0..1"),
        ({"criterion": "min2-min"}, "criterion is 'min2-min', it must be one of Criterion.MIN2_MIN"),
    ],
)
async def test_a_choice_that_is_none_is_named_alike_here_and_there(
    dispatcher: Dispatcher, choice: dict[str, Any], named: str
) -> None:
    with pytest.raises(InvalidArgument, match=named):
        esd.hybrid_dis([[1, 5], [2, 9]], [1, 1], **choice)
    with pytest.raises(InvalidArgument, match=named):
        await dispatcher.client.hybrid_dis([[1, 5], [2, 9]], [1, 1], **choice)


async def test_lists_and_integers_of_any_size_are_taken(dispatcher: Dispatcher) -> None:
    result = await dispatcher.client.hybrid_dis([[1, 5], [2, 9], [4, 4]], [2, 1])
    assert result.assignment.tolist() == [0, 0, 1]
    result = await dispatcher.client.hybrid_dis(np.array([[1, 5], [5, 1]], np.uint8), np.array([1, 1]))
    assert result.assignment.tolist() == [0, 1]
    with pytest.raises(InvalidArgument, match=r"costs\[0, 1\] is 2147483648, integer costs must be in 0..2\^31-1"):
        await dispatcher.client.hybrid_dis([[1, 2**31]], [1, 0])
