"""HybridDis over gRPC: the answer is the solver's, and many calls at a time are fine."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

import esd
from esd.protos import dispatcher_pb2 as pb
from esd.protos import dispatcher_pb2_grpc
from esd.services.domain.errors import InvalidArgument, Overloaded, ResourceExhausted
from esd.services.domain.hybrid import HybridProblem
from esd.services.domain.mechanisms import Criterion
from esd.services.runtime.channel import channel
from esd.services.runtime.status import domain_errors
from esd.services.wire.hybrid import encode_problem
from tests.support.simple_clients import Dispatcher

PROBLEM = HybridProblem.of(np.array([[1, 9], [9, 3]], np.float32), [1, 1], 1.0, Criterion.MIN2_MIN, "auto")


async def test_optimum_of_a_small_matrix(dispatcher: Dispatcher) -> None:
    costs = np.array([[1, 9], [2, 3], [1, 2], [8, 9]], np.int32)
    result = await dispatcher.client.hybrid_dis(costs, np.array([2, 2], np.int32), alpha=1.0)
    assert result.assignment.tolist() == [0, 1, 1, 0] or result.cost == 14
    assert result.cost == costs[np.arange(4), result.assignment].sum() == 14
    assert result.optimal_rows.tolist() == [0, 1, 2, 3]
    assert (result.solver, result.gap) == ("dual", 0)
    assert result.seconds > 0


@pytest.mark.gpu
@pytest.mark.parametrize("solver", ["dual-cuda", "hungarian-cuda"])
async def test_a_named_solver_answers_on_the_device_and_as_all_others(dispatcher: Dispatcher, solver: str) -> None:
    costs = np.random.default_rng(6).integers(0, 500, (20_000, 8), dtype=np.int32)
    capacities = np.full(8, 2500, np.int32)
    found = await dispatcher.client.hybrid_dis(costs, capacities, alpha=0.5, solver=solver)
    on_processor = await dispatcher.client.hybrid_dis(costs, capacities, alpha=0.5, solver="dual")
    assert (found.solver, found.gap, on_processor.solver) == (solver, 0, "dual")
    assert found.assignment.tolist() == on_processor.assignment.tolist()


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


async def test_costs_that_are_longer_than_a_message_are_solved(start_dispatcher: Any) -> None:
    dispatcher = await start_dispatcher(max_request_bytes=2**16)
    costs = np.random.default_rng(4).random((2**15, 4), dtype=np.float32)  # eight times as long
    capacities = np.full(4, 2**13, np.int32)
    result = await dispatcher.client.hybrid_dis(costs, capacities, alpha=0.1)
    here = esd.hybrid_dis(costs, capacities, alpha=0.1)
    assert result.assignment.tolist() == here.assignment.tolist()
    assert result.optimal_rows.tolist() == here.optimal_rows.tolist()


async def test_a_call_of_one_message_needs_no_stream(dispatcher: Dispatcher) -> None:
    (request,) = encode_problem(PROBLEM)
    async with channel(dispatcher.address) as open_channel:
        unary = open_channel.unary_unary(
            "/esd.v1.Dispatcher/HybridDis", pb.HybridDisRequest.SerializeToString, pb.HybridDisResponse.FromString
        )
        assert (await unary(request, timeout=60)).total_cost == 4


async def test_costs_beyond_the_limit_are_refused_before_they_are_read(start_dispatcher: Any) -> None:
    dispatcher = await start_dispatcher(max_costs_bytes=2**21, max_message_bytes=2**21)
    with pytest.raises(
        ResourceExhausted, match=r"the costs have 2097160 bytes, .* ESD_DISPATCHER_MAX_COSTS_BYTES=2097152"
    ):
        await dispatcher.client.hybrid_dis(np.ones((2**18 + 1, 2), np.float32), [2**17, 2**17 + 1])
    named = "the answer may have 2404096 bytes, .* ESD_DISPATCHER_MAX_MESSAGE_BYTES=2097152"
    with pytest.raises(ResourceExhausted, match=named):
        await dispatcher.client.hybrid_dis(np.ones((300_000, 1), np.float32), [300_000])


async def test_calls_share_the_bytes_of_their_costs_and_give_them_back(start_dispatcher: Any) -> None:
    dispatcher = await start_dispatcher(max_costs_bytes=2**20)
    costs, capacities = np.ones((2**17, 2), np.float32), [2**16, 2**16]  # as many bytes as there may be
    async with channel(dispatcher.address) as open_channel:
        refused = asyncio.Event()

        async def messages() -> AsyncIterator[pb.HybridDisRequest]:
            for message in encode_problem(PROBLEM):
                yield message
            await refused.wait()

        call = dispatcher_pb2_grpc.DispatcherStub(open_channel).HybridDis(messages())
        with pytest.raises(Overloaded, match="ESD_DISPATCHER_MAX_COSTS_BYTES=1048576"):
            await _until_refused(dispatcher, costs, capacities)
        refused.set()
        assert (await call).total_cost == 4
    assert (await dispatcher.client.hybrid_dis(costs, capacities)).cost == 2**17


async def _until_refused(dispatcher: Dispatcher, costs: np.ndarray, capacities: list[int]) -> None:
    """Calls until the first message of the other call has been read."""
    while True:
        await dispatcher.client.hybrid_dis(costs, capacities)


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([], "the call has no message"),
        ([{"int_costs": bytes(12)}], "a message has int_costs, but the first message has float_costs"),
        ([{}], "a message has no costs, but the first message has float_costs"),
        ([{"float_costs": bytes(8)}], r"float_costs has 24 bytes, float32 \[2, 2\] needs 16"),
    ],
    ids=["no message", "other costs", "no costs", "too many"],
)
async def test_messages_that_make_no_problem_are_refused(
    dispatcher: Dispatcher, messages: list[dict[str, bytes]], text: str
) -> None:
    first = [*encode_problem(PROBLEM)] if messages else []
    async with channel(dispatcher.address) as open_channel:
        stub = dispatcher_pb2_grpc.DispatcherStub(open_channel)
        with pytest.raises(InvalidArgument, match=text), domain_errors():
            await stub.HybridDis(iter([*first, *(pb.HybridDisRequest(**each) for each in messages)]))


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
