"""The CUDA solvers without a device: one log line, and the CPU's answer."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from esd.dispatcher.solvers import DEVICE_ENTRIES, get_solver
from esd.dispatcher.solvers.cuda import solver as cuda_solver
from esd.dispatcher.solvers.cuda.solver import check
from esd.dispatcher.solvers.native import NativeSolver
from esd.services.domain.errors import InvalidArgument, Unavailable

CAPACITIES = np.array([2, 2], np.int32)


@pytest.fixture
def no_device(monkeypatch):
    """A machine without a driver, also if this one has a driver."""

    def fail():
        raise Unavailable("no CUDA device: no driver")

    monkeypatch.setattr(cuda_solver, "open_device", fail)
    cuda_solver._device.cache_clear()
    yield
    cuda_solver._device.cache_clear()


@pytest.mark.usefixtures("no_device")
def test_no_device_is_one_log_line_and_the_cpu(caplog):
    costs = np.array([[1, 5], [1, 5], [1, 5], [2, 3]], np.int32)
    with caplog.at_level(logging.INFO):
        found = [get_solver(name).solve(costs, CAPACITIES) for name in ("dual-cuda", "hungarian-cuda", "dual-cuda")]
    assert [record.getMessage() for record in caplog.records if record.name.startswith("esd.dispatcher.")] == [
        "CUDA solvers are not available, the CPU solves instead: no CUDA device: no driver"
    ]
    for solution in found:
        assert solution.solver == "dual"
        assert solution.cost == 10
        np.testing.assert_array_equal(solution.assignment, NativeSolver("dual").solve(costs, CAPACITIES).assignment)


@pytest.mark.usefixtures("no_device")
@pytest.mark.parametrize("name", ["dual-cuda", "hungarian-cuda"])
def test_bad_input_is_refused_without_a_device_too(name):
    with pytest.raises(InvalidArgument, match=r"costs\[0, 0\] is nan"):
        get_solver(name).solve(np.full((4, 2), np.nan), CAPACITIES)


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
        get_solver("auto").solve(OnDevice(DEVICE_ENTRIES), CAPACITIES)


@pytest.mark.parametrize(
    ("shape", "dtype", "capacities", "prices", "message"),
    [
        ((4,), np.int32, CAPACITIES, None, r"shape \(4,\)"),
        ((4, 2), np.int64, CAPACITIES, None, "dtype int64"),
        ((2**29, 4), np.int32, CAPACITIES, None, "536870912 x 4 entries.*2\\^30"),
        ((65, 65), np.int32, np.ones(65, np.int32), None, "65 columns.*1..64"),
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
