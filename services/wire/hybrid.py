"""HybridDis calls and their answers, between esd.services.domain.hybrid and the contract."""

from __future__ import annotations

import numpy as np

from esd.protos import dispatcher_pb2 as pb
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.hybrid import HybridProblem, HybridResult
from esd.services.domain.jobs import MAX_WORKERS
from esd.services.wire.arrays import decode_array, decode_column, encode_array
from esd.services.wire.jobs import CRITERIA

_DTYPES = {"float_costs": np.float32, "int_costs": np.int32}


def encode_problem(problem: HybridProblem) -> pb.HybridDisRequest:
    """Returns the request of a call."""
    field = next(name for name, dtype in _DTYPES.items() if problem.costs.dtype == dtype)
    samples, workers = problem.costs.shape
    request = pb.HybridDisRequest(
        samples=samples,
        workers=workers,
        capacities=encode_array(problem.capacities, np.int32, "capacities"),
        alpha=problem.alpha,
        criterion=CRITERIA.encode(problem.criterion),
        solver=problem.solver,
    )
    setattr(request, field, encode_array(problem.costs, _DTYPES[field], field))
    return request


def decode_problem(request: pb.HybridDisRequest) -> HybridProblem:
    """Decodes a call and checks its shapes; hybrid_dis checks its numbers.

    Raises:
        InvalidArgument: costs are not set, or an array does not have the shape that samples and workers imply.
    """
    field = request.WhichOneof("costs")
    if field is None:
        raise InvalidArgument("costs are not set, neither float_costs nor int_costs")
    if request.samples < 1:
        raise InvalidArgument("samples is 0, it must be at least 1")
    if not 1 <= request.workers <= MAX_WORKERS:
        raise InvalidArgument(f"workers is {request.workers}, it must be in 1..{MAX_WORKERS}")
    return HybridProblem(
        costs=decode_array(getattr(request, field), _DTYPES[field], (request.samples, request.workers), field),
        capacities=decode_array(request.capacities, np.int32, (request.workers,), "capacities"),
        alpha=request.alpha,
        criterion=CRITERIA.decode(request.criterion),
        solver=request.solver or "auto",
    )


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
