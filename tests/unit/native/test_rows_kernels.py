"""Initial values and optimizers against numpy."""

import numpy as np
import pytest

from esd.native import rows as native
from esd.services.domain.ids import mix64

GOLDEN = 0x9E3779B97F4A7C15
MASK = 2**64 - 1


def reference_initial(ids, dimension, width, seed, scale):
    stream = mix64(ids ^ mix64(np.array([(seed + GOLDEN) & MASK], np.uint64)))
    columns = np.array([((c + 1) * GOLDEN) & MASK for c in range(dimension)], np.uint64)
    uniform = (mix64(stream[:, None] + columns[None, :]) >> np.uint64(40)).astype(np.float64) * 2.0**-24
    rows = np.zeros((len(ids), width), np.float32)
    rows[:, :dimension] = ((2 * uniform - 1) * scale).astype(np.float32)
    return rows


def reference_sgd(rows, gradients, rates):
    return rows.astype(np.float64) - rates[:, None] * gradients.astype(np.float64)


def reference_adagrad(rows, gradients, rates, epsilon):
    g = gradients.astype(np.float64)
    w, s = rows[:, :-1].astype(np.float64), rows[:, -1:].astype(np.float64)
    s = s + (g**2).mean(axis=1, keepdims=True)
    return np.hstack([w - rates[:, None] * g / (np.sqrt(s) + epsilon), s])


def reference_adam(rows, gradients, steps, rates, epsilon, beta1, beta2):
    g = gradients.astype(np.float64)
    w, m, v = np.split(rows.astype(np.float64), 3, axis=1)
    t = steps[:, None].astype(np.float64)
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g**2
    bias = np.sqrt(1 - beta2**t) / (1 - beta1**t)
    return np.hstack([w - rates[:, None] * bias * m / (np.sqrt(v) + epsilon), m, v])


@pytest.mark.parametrize(("dimension", "width"), [(1, 1), (7, 8), (16, 48), (512, 512)])
@pytest.mark.parametrize("seed", [0, 1, 2**64 - 1])
def test_initial_values_are_the_documented_function_of_seed_and_id(dimension, width, seed):
    ids = np.array([0, 1, 2, 2**63, 2**64 - 1], np.uint64)
    rows = np.full((5, width), np.nan, np.float32)
    native.initialise(ids, np.zeros(5, np.int64), rows, dimension, seed, 0.01)
    np.testing.assert_array_equal(rows, reference_initial(ids, dimension, width, seed, 0.01))
    assert (rows[:, :dimension] >= -0.01).all()
    assert (rows[:, :dimension] < 0.01).all()


def test_initial_values_leave_trained_rows_alone():
    ids = np.arange(4, dtype=np.uint64)
    versions = np.array([0, 3, 0, 1], np.int64)
    rows = np.full((4, 2), 9, np.float32)
    native.initialise(ids, versions, rows, 2, 5, 1.0)
    assert (rows[[1, 3]] == 9).all()
    np.testing.assert_array_equal(rows[[0, 2]], reference_initial(ids[[0, 2]], 2, 2, 5, 1.0))


@pytest.mark.parametrize("dimension", [1, 3, 16, 129])
def test_optimizers_follow_their_formulas_over_many_steps(dimension):
    rng = np.random.default_rng(dimension)
    r = 9
    values = rng.standard_normal((r, dimension)).astype(np.float32)
    sgd = values.copy()
    adagrad = np.hstack([values, np.zeros((r, 1), np.float32)])
    adam = np.hstack([values, np.zeros((r, 2 * dimension), np.float32)])
    for step in range(1, 30):
        g = (rng.standard_normal((r, dimension)) * 0.1).astype(np.float32)
        steps = np.full(r, step * 7, np.uint32)
        rates = rng.uniform(0.0, 0.05, r).astype(np.float32)
        expected = (
            reference_sgd(sgd, g, rates),
            reference_adagrad(adagrad, g, rates, 1e-8),
            reference_adam(adam, g, steps, rates, 1e-8, 0.9, 0.999),
        )
        native.sgd(sgd, g, rates)
        native.rowwise_adagrad(adagrad, g, rates, 1e-8)
        native.adam(adam, g, steps, rates, 1e-8, 0.9, 0.999)
        for rows, reference in zip((sgd, adagrad, adam), expected, strict=True):
            np.testing.assert_allclose(rows, reference, rtol=3e-6, atol=1e-7)


def test_longer_rows_are_scaled_down_and_others_and_the_state_stay():
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((200, 9)).astype(np.float32)
    values = rows[:, :7].astype(np.float64)
    norms = np.sqrt((values**2).sum(axis=1, keepdims=True))
    most = float(np.median(norms))
    expected = np.hstack([np.where(norms > most, values * (most / norms), values), rows[:, 7:]])
    short = np.flatnonzero(norms[:, 0] <= most)
    before = rows.copy()
    native.limit_norms(rows, 7, most)
    np.testing.assert_allclose(rows, expected, rtol=2e-7)
    np.testing.assert_array_equal(rows[short], before[short])
    assert 90 < len(short) < 110
    native.limit_norms(before, 7, 0.0)
    np.testing.assert_array_equal(before[short], rows[short])
    assert np.linalg.norm(before[:, :7], axis=1).max() > 1.5 * most  # 0 limits nothing
    unlimited = np.array([[np.nan, 1], [0, 0]], np.float32)
    native.limit_norms(unlimited, 2, 0.5)
    np.testing.assert_array_equal(unlimited, np.array([[np.nan, 1], [0, 0]], np.float32))


def test_a_defect_of_the_caller_raises_value_error():
    rows, gradients = np.zeros((2, 4), np.float32), np.zeros((3, 4), np.float32)
    rates = np.full(2, 0.1, np.float32)
    with pytest.raises(ValueError, match="differ in length"):
        native.sgd(rows, gradients, rates)
    with pytest.raises(ValueError, match="D \\+ 1"):
        native.rowwise_adagrad(rows, gradients[:2], rates, 1e-8)
    with pytest.raises(ValueError, match="more values than floats"):
        native.limit_norms(rows, 5, 1.0)
    with pytest.raises(ValueError, match="is negative"):
        native.limit_norms(rows, 4, -1.0)
    with pytest.raises(ValueError, match="3 D"):
        native.adam(rows, gradients[:2], np.ones(2, np.uint32), rates, 1e-8, 0.9, 0.999)
