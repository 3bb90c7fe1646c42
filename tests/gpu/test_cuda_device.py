"""Tests of the kernels that need a device. The contract of all solvers runs on it, too (tests/contract)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from esd.dispatcher.solvers import get_solver
from esd.dispatcher.solvers.cuda.device import BLOCK_SAMPLES, open_device
from esd.services.domain.errors import InvalidArgument
from testbed.cost_families import FAMILIES

pytestmark = pytest.mark.gpu

NAMES = ("dual-cuda", "hungarian-cuda")


def even(samples, workers):
    return np.array([samples // workers + (j < samples % workers) for j in range(workers)], np.int32)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("samples", "workers"), [(8192, 8), (BLOCK_SAMPLES + 1, 8), (40_000, 16), (16_384, 64)])
def test_equal_to_the_cpu(name, family, samples, workers):
    costs = FAMILIES[family](samples, workers, np.random.default_rng(1))
    capacities = even(samples, workers)
    expected = get_solver("auto").solve(costs, capacities)
    found = get_solver(name).solve(costs, capacities)
    assert found.solver.endswith("-cuda")
    assert found.cost == expected.cost
    np.testing.assert_array_equal(found.assignment, expected.assignment)
    np.testing.assert_array_equal(found.prices, expected.prices)


@pytest.mark.parametrize("name", [*NAMES, "auto"])
def test_a_tensor_on_the_device_is_taken_as_it_is(name):
    costs = FAMILIES["esd"](4096, 8, np.random.default_rng(2))
    expected = get_solver("paths").solve(costs, even(4096, 8))
    tensor = torch.from_numpy(costs).cuda()
    assert open_device().view(tensor).ptr == tensor.data_ptr()
    found = get_solver(name).solve(tensor, even(4096, 8))
    np.testing.assert_array_equal(found.assignment, expected.assignment)


@pytest.mark.parametrize("name", NAMES)
def test_the_solve_waits_for_the_stream_that_makes_the_costs(name):
    costs = FAMILIES["esd"](8192, 8, np.random.default_rng(3))
    expected = get_solver("paths").solve(costs, even(8192, 8))
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(200_000_000)  # cycles: the copy below comes long after the solve is asked for
        tensor = torch.from_numpy(costs).pin_memory().to("cuda", non_blocking=True)
        found = get_solver(name).solve(tensor, even(8192, 8))
    np.testing.assert_array_equal(found.assignment, expected.assignment)


def test_many_threads_share_the_device():
    instances = [FAMILIES["cached"](1024, 8, np.random.default_rng(seed)) for seed in range(16)]
    expected = [get_solver("dual").solve(costs, even(1024, 8)).assignment for costs in instances]
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda costs: get_solver("dual-cuda").solve(costs, even(1024, 8)).assignment, instances)
        for mine, theirs in zip(found, expected, strict=True):
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("name", NAMES)
def test_strided_and_bad_costs_on_the_device_are_refused(name):
    costs = torch.ones((64, 8), device="cuda")
    with pytest.raises(InvalidArgument, match="strides"):
        get_solver(name).solve(costs[:, ::2], even(64, 4))
    costs[3, 2] = float("nan")
    with pytest.raises(InvalidArgument, match=r"costs\[3, 2\] is nan"):
        get_solver(name).solve(costs, even(64, 8))
