"""HybridDis calls and their answers, between esd.services.domain.hybrid and the contract."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esd.protos import dispatcher_pb2 as pb
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.hybrid import HybridProblem, HybridResult
from esd.services.domain.worker_set import MAX_WORKERS
from esd.services.wire.arrays import decode_array, decode_column, encode_array
from esd.services.wire.jobs import CRITERIA

PIECE_BYTES = 1 << 15  # of costs in one message: below the least limit of a request, and long enough for most matrices
_ANSWER_OVERHEAD = 4096  # bytes of an answer besides its arrays of samples

_DTYPES = {"float_costs": np.float32, "int_costs": np.int32}


def encode_problem(problem: HybridProblem) -> Iterator[pb.HybridDisRequest]:
    """Yields the messages of a call: the first with all but the costs that need further ones."""
    field = next(name for name, dtype in _DTYPES.items() if problem.costs.dtype == dtype)
    samples, workers = problem.costs.shape
    costs = encode_array(problem.costs, _DTYPES[field], field)
    request = pb.HybridDisRequest(
        samples=samples,
        workers=workers,
        capacities=encode_array(problem.capacities, np.int32, "capacities"),
        alpha=problem.alpha,
        criterion=CRITERIA.encode(problem.criterion),
        solver=problem.solver,
    )
    for start in range(0, len(costs), PIECE_BYTES):
        setattr(request, field, costs[start : start + PIECE_BYTES])
        yield request
        request = pb.HybridDisRequest()


class JoinedProblem:
    """The messages of one call, until its costs are complete.

    Args:
        first: the first message.

    Raises:
        InvalidArgument: costs are not set, or there are no samples, or too many or no workers.
    """

    def __init__(self, first: pb.HybridDisRequest) -> None:
        field = first.WhichOneof("costs")
        if field is None:
            raise InvalidArgument("costs are not set, neither float_costs nor int_costs")
        if first.samples < 1:
            raise InvalidArgument("samples is 0, it must be at least 1")
        if not 1 <= first.workers <= MAX_WORKERS:
            raise InvalidArgument(f"workers is {first.workers}, it must be in 1..{MAX_WORKERS}")
        self._first = first
        self._field = field
        self._costs = bytearray()

    @property
    def costs_bytes(self) -> int:
        """The bytes that all costs have."""
        return 4 * self._first.samples * self._first.workers

    @property
    def answer_bytes(self) -> int:
        """The most bytes that the answer has: two numbers for each sample, and prices."""
        return 8 * self._first.samples + _ANSWER_OVERHEAD

    def add(self, message: pb.HybridDisRequest) -> int:
        """Adds the costs of the first or the next message, and returns their bytes.

        Raises:
            InvalidArgument: the message continues other costs, or has more of them than are left.
        """
        field = message.WhichOneof("costs")
        if field != self._field:
            raise InvalidArgument(f"a message has {field or 'no costs'}, but the first message has {self._field}")
        costs = getattr(message, field)
        if len(self._costs) + len(costs) > self.costs_bytes:
            self._decode(bytes(self._costs) + costs)  # which refuses them by their shape
        self._costs += costs
        return len(costs)

    def problem(self) -> HybridProblem:
        """Decodes the call and checks its shapes; hybrid_dis checks its numbers.

        Raises:
            InvalidArgument: an array does not have the shape that samples and workers imply.
        """
        first = self._first
        return HybridProblem(
            costs=self._decode(self._costs),
            capacities=decode_array(first.capacities, np.int32, (first.workers,), "capacities"),
            alpha=first.alpha,
            criterion=CRITERIA.decode(first.criterion),
            solver=first.solver or "auto",
        )

    def _decode(self, costs: bytes | bytearray) -> NDArray[Any]:
        return decode_array(costs, _DTYPES[self._field], (self._first.samples, self._first.workers), self._field)


def encode_result(result: HybridResult) -> pb.HybridDisResponse:
    """Returns the answer to a call."""
    return pb.HybridDisResponse(
        assignment=encode_array(result.assignment, np.int32, "assignment"),
        total_cost=result.cost,
        optimal_rows=encode_array(result.optimal_rows, np.uint32, "optimal_rows"),
        solver=result.solver,
        seconds=result.seconds,
        gap=result.gap,
    )


def decode_result(response: pb.HybridDisResponse) -> HybridResult:
    """Decodes the answer to a call. Prices are not sent."""
    return HybridResult(
        assignment=decode_column(response.assignment, np.int32, "assignment"),
        cost=response.total_cost,
        optimal_rows=decode_column(response.optimal_rows, np.uint32, "optimal_rows"),
        solver=response.solver,
        prices=None,
        seconds=response.seconds,
        gap=response.gap,
    )
