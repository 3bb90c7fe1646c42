"""The rows of a cache after a backward pass, against the same in steps of torch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from esd.native import training
from esd.ps_server.core.gradients import apply_optimizer
from esd.services.domain.tables import OptimizerKind, OptimizerSpec
from esd.worker.training.rows import RowCache, train_on_device
from tests.unit.worker.conftest import HandMadePlans

SLOTS, DIMENSION, FIELDS, SAMPLES, DISTINCT = 40, 9, 5, 12, 17
RATE = np.float32(0.1)
ALONE, SHARED = 0b100, 0b110
# Their rates are the job's, and the iteration's counts. Rows of 9 values in 0..1 have a norm of about 1.7.
OPTIMIZERS = [
    pytest.param(OptimizerSpec(kind, learning_rate=9.0, max_norm=norm), id=f"{kind.value}, norm up to {norm}")
    for norm in (0.0, 1.7)
    for kind in OptimizerKind
]


@pytest.fixture
def step():
    """A plan whose odd rows are shared, a cache, and gradients by id."""

    def make(optimizer: OptimizerSpec):
        rng = np.random.default_rng(11)
        slots = rng.permutation(SLOTS)[:DISTINCT]
        rows = [(100 + i, int(slot), 6, SHARED if i % 2 else ALONE) for i, slot in enumerate(slots)]
        inverse = rng.integers(0, DISTINCT, SAMPLES * FIELDS, np.uint32)
        inverse[:DISTINCT] = np.arange(DISTINCT)
        plan = replace(HandMadePlans.plan(6, train=rows), inverse=inverse)
        cache = rng.random((SLOTS, DIMENSION + optimizer.state_width(DIMENSION)), np.float32)
        return plan, cache, rng.normal(size=(SAMPLES * FIELDS, DIMENSION)).astype(np.float32)

    return make


def trained(optimizer, plan, cache, gradients, sums=None):
    """The cache after a step: of one worker, or with the sums of all workers' gradients of replicated rows."""
    rows = RowCache(*cache.shape, torch.device("cpu"))
    rows.rows.copy_(torch.from_numpy(cache))
    (used,) = plan.rows_by_table(1)
    shared = torch.empty(len(plan.reduced), DIMENSION)
    rows.train(used, torch.from_numpy(gradients), shared, optimizer, float(RATE), plan.iteration + 1)
    if sums is not None:
        rows.train_replicated(used, torch.from_numpy(sums), optimizer, float(RATE), plan.iteration + 1)
    return rows.rows.numpy()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_does_what_steps_of_torch_do(step, optimizer):
    plan, cache, gradients = step(optimizer)
    expected = torch.from_numpy(cache.copy())
    (used,) = plan.rows_by_table(1)
    none = torch.empty(0, DIMENSION)
    train_on_device(expected, used, torch.from_numpy(gradients), none, optimizer, float(RATE), plan.iteration + 1)
    found = trained(optimizer, plan, cache, gradients)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-6, atol=1e-7)
    shared = plan.unique_slots[1::2]
    np.testing.assert_array_equal(found[shared], expected.numpy()[shared])
    if optimizer == OPTIMIZERS[0].values[0]:
        np.testing.assert_array_equal(found, expected.numpy())


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_rows_are_trained_as_the_parameter_server_trains_split_ones(step, optimizer):
    plan, cache, gradients = step(optimizer)
    sums = np.zeros((DISTINCT, DIMENSION), np.float32)
    for row, gradient in zip(plan.inverse, gradients, strict=True):
        sums[row] += gradient
    owned, split = plan.unique_slots[::2], plan.unique_slots[1::2]
    block, expected, rates = cache[owned], cache.copy(), np.full(len(owned), RATE)
    apply_optimizer(optimizer, block, sums[::2], np.full(len(block), 7, np.uint32), rates)
    expected[owned] = block
    expected[split, :DIMENSION] = sums[1::2]
    np.testing.assert_array_equal(trained(optimizer, plan, cache, gradients), expected)
    norms = np.linalg.norm(block[:, :DIMENSION], axis=1)
    assert (norms.max() <= 1.7 * (1 + 1e-6)) == (optimizer.max_norm > 0)
    assert norms.min() < 1.69


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_replicated_row_waits_for_the_sum_and_is_trained_as_if_alone(step, optimizer):
    plan, cache, gradients = step(optimizer)
    plan = replace(plan, reduced=np.array([2, 5, 16], np.uint32))
    (used,) = plan.rows_by_table(1)
    mine = [train(torch.from_numpy(cache.copy()), used, gradients, optimizer) for train in (on_the_host, on_a_device)]
    places = plan.reduced[:, None] == plan.inverse
    sums = np.array([gradients[of_row].sum(axis=0) for of_row in places])
    for rows, shared in mine:
        np.testing.assert_allclose(shared, sums, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(rows[used.reduced()], cache[used.reduced()])
    alone = replace(plan, unique_contributors=np.full(DISTINCT, ALONE, np.uint64), reduced=plan.reduced[:0])
    expected = trained(optimizer, alone, cache, gradients)
    found = trained(optimizer, plan, cache, gradients, mine[0][1])
    np.testing.assert_array_equal(found[used.reduced()], expected[used.reduced()])


def on_the_host(cache, used, gradients, optimizer):
    rows, shared = RowCache(*cache.shape, torch.device("cpu")), torch.full((3, DIMENSION), np.nan)
    rows.rows.copy_(cache)
    rows.train(used, torch.from_numpy(gradients), shared, optimizer, float(RATE), 7)
    return rows.rows.numpy(), shared.numpy()


def on_a_device(cache, used, gradients, optimizer):
    shared = torch.full((3, DIMENSION), np.nan)
    train_on_device(cache, used, torch.from_numpy(gradients), shared, optimizer, float(RATE), 7)
    return cache.numpy(), shared.numpy()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_sets_of_more_than_64_workers_are_as_those_of_fewer(step, optimizer):
    """Rows of one worker, in either word, of two in one word or in both, and replicated ones."""
    plan, cache, gradients = step(optimizer)
    sets = np.array([[ALONE, 0], [0, ALONE], [SHARED, 0], [0, SHARED], [1, 1]], np.uint64)
    kinds = np.where(np.arange(DISTINCT) % 2, 2 + np.arange(DISTINCT) % 3, np.arange(DISTINCT) // 2 % 2)
    wide = replace(plan, unique_contributors=sets[kinds], reduced=np.array([2, 4, 16], np.uint32))
    plan = replace(plan, reduced=wide.reduced)
    (few,), (many,) = plan.rows_by_table(1), wide.rows_by_table(1)
    for train in (on_the_host, on_a_device):
        for one, other in zip(
            train(torch.from_numpy(cache.copy()), few, gradients, optimizer),
            train(torch.from_numpy(cache.copy()), many, gradients, optimizer),
            strict=True,
        ):
            np.testing.assert_array_equal(one, other)


def test_a_worker_without_samples_trains_nothing(step):
    optimizer = OptimizerSpec()
    _, cache, gradients = step(optimizer)
    plan = replace(HandMadePlans.plan(0), inverse=np.zeros(0, np.uint32))
    np.testing.assert_array_equal(trained(optimizer, plan, cache, gradients[:0]), cache)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"slots": np.full(DISTINCT, SLOTS, np.uint32)}, "beyond the cache"),
        ({"inverse": np.full(SAMPLES * FIELDS, DISTINCT, np.uint32)}, "not among the distinct"),
        ({"inverse": np.zeros(SAMPLES * FIELDS + 1, np.uint32)}, "one gradient per id"),
        ({"contributors": np.zeros(1, np.uint64)}, "differ in length"),
        ({"contributors": np.zeros(DISTINCT, np.uint64)}, "one shared gradient per replicated row"),
        ({"shared": np.zeros((0, DIMENSION + 1), np.float32)}, "another dimension"),
        ({"cache": np.zeros((SLOTS, DIMENSION + 1), np.float32)}, "this optimizer's width"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_changes(step, changes, message):
    plan, cache, gradients = step(OptimizerSpec())
    given = {
        "cache": cache,
        "slots": plan.unique_slots,
        "contributors": plan.unique_contributors,
        "inverse": plan.inverse,
        "gradients": gradients,
        "shared": np.empty((0, DIMENSION), np.float32),
    } | changes
    before = given["cache"].copy()
    with pytest.raises(ValueError, match=message):
        training.sgd(**given, learning_rate=0.1)
    np.testing.assert_array_equal(given["cache"], before)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_row_takes_a_step_where_gradients_are_gathered(step, optimizer):
    """Every row takes a step, with any other trainers; earlier gradients are added to, here and in steps of torch."""
    plan, cache, gradients = step(optimizer)
    rows = RowCache(*cache.shape, torch.device("cpu"), gathers=DIMENSION)
    rows.rows.copy_(torch.from_numpy(cache))
    rows.gathered.fill_(0.25)
    expected, gathered = torch.from_numpy(cache.copy()), rows.gathered.clone()
    (used,) = plan.rows_by_table(1)
    arguments = torch.from_numpy(gradients), torch.empty(0, DIMENSION), optimizer, float(RATE), plan.iteration + 1
    rows.train(used, *arguments)
    train_on_device(expected, used, *arguments, gathered)
    np.testing.assert_allclose(rows.rows.numpy(), expected.numpy(), rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(rows.gathered.numpy(), gathered.numpy())
    alone = replace(plan, unique_contributors=np.full(DISTINCT, ALONE, np.uint64))
    np.testing.assert_array_equal(rows.rows.numpy(), trained(optimizer, alone, cache, gradients))
    rows.empty_gathered(plan.unique_slots)
    assert not rows.gathered[plan.unique_slots.astype(np.int64)].any()
    assert (rows.gathered == 0.25).sum() == DIMENSION * (SLOTS - DISTINCT)
