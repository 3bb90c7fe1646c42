"""The CUDA solvers without a device: they are refused, and no other solver answers for them."""

from __future__ import annotations

import numpy as np
import pytest

import esd
from esd.dispatcher import solvers
from esd.dispatcher.solvers import DEVICE_SAMPLES, get_solver
from esd.dispatcher.solvers.cuda import solver as cuda_solver
from esd.dispatcher.solvers.cuda.solver import check
from esd.services.domain.errors import FailedPrecondition, InvalidArgument, Unavailable

CAPACITIES = np.array([2, 2], np.int32)


@pytest.fixture
def no_device(monkeypatch):
    """A machine without a driver, also if this one has a driver."""

    def fail():
        raise Unavailable("no CUDA device: no driver")

    monkeypatch.setattr(cuda_solver, "open_device", fail)
    monkeypatch.setattr(solvers, "open_device", fail)


@pytest.mark.usefixtures("no_device")
@pytest.mark.parametrize("name", ["dual-cuda", "hungarian-cuda"])
@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_a_solver_without_its_device_is_refused_by_name(name, alpha):
    needed = f"solver {name} needs a CUDA device .*auto, dual and paths need none.*: no CUDA device: no driver"
    with pytest.raises(FailedPrecondition, match=needed):
        esd.hybrid_dis([[1, 5], [1, 5], [1, 5], [2, 3]], CAPACITIES, alpha=alpha, solver=name)
    with pytest.raises(Unavailable, match="no driver"):
        get_solver(name).solve(np.ones((4, 2), np.int32), CAPACITIES)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_more_workers_than_the_kernels_take_are_refused_before_a_device_is_opened(alpha):
    with pytest.raises(InvalidArgument, match="65 workers, a CUDA solver takes at most 64; use a CPU solver"):
        esd.hybrid_dis(np.ones((65, 65)), np.ones(65, np.int32), alpha=alpha, solver="hungarian-cuda")


class OnDevice:
    """A torch tensor on a device, as a solver sees it."""

    def __init__(self, rows):
        self.shape = (rows, 2)

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, *, stream=None):
        raise AssertionError("nothing may be read")


@pytest.mark.parametrize("name", ["dual", "paths"])
def test_cpu_solvers_refuse_costs_on_a_device(name):
    with pytest.raises(InvalidArgument, match=r"OnDevice.*takes numpy arrays only"):
        get_solver(name).solve(OnDevice(4), CAPACITIES)


@pytest.mark.usefixtures("no_device")
def test_costs_on_a_device_need_one():
    with pytest.raises(Unavailable, match="no driver"):
        get_solver("auto").solve(OnDevice(2 * DEVICE_SAMPLES), CAPACITIES)


@pytest.mark.parametrize(
    ("shape", "dtype", "capacities", "prices", "message"),
    [
        ((4,), np.int32, CAPACITIES, None, r"shape \(4,\)"),
        ((4, 2), np.int64, CAPACITIES, None, "dtype int64"),
        ((2**29, 4), np.int32, CAPACITIES, None, "536870912 x 4 entries.*2\\^30"),
        ((65, 65), np.int32, np.ones(65, np.int32), None, "65 workers, a CUDA solver takes at most 64"),
        ((0, 2), np.int32, np.zeros(2, np.int32), None, "0 rows"),
        ((4, 2), np.int32, np.array([2, 3], np.int32), None, "capacities sum to 5.* 4"),
        ((4, 2), np.int32, np.array([5, -1], np.int32), None, "capacity of worker 1 is -1"),
        ((4, 2), np.int32, np.array([2**31 - 1, 2**31 - 1], np.int32), None, "capacities sum to 4294967294"),
        ((4, 2), np.int32, CAPACITIES, np.array([0, np.inf]), "price of worker 1 is inf"),
    ],
)
def test_what_the_kernels_cannot_see_is_checked_before(shape, dtype, capacities, prices, message):
    with pytest.raises(InvalidArgument, match=message):
        check(shape, np.dtype(dtype), capacities, prices)
