import numpy as np
import pytest
import torch

from esd.ps_server.core.gradients import apply_optimizer
from esd.services.domain.tables import OptimizerKind, OptimizerSpec
from esd.worker.training.rows import updated_rows

DIMENSION = 6


@pytest.fixture
def touched():
    """For 12 steps, which rows of 20 are trained and their gradients."""
    generator = torch.Generator().manual_seed(3)
    steps = []
    for _ in range(12):
        rows = torch.randperm(20, generator=generator)[:7]
        steps.append((rows, torch.randn(7, DIMENSION, generator=generator)))
    return steps


def train(optimizer, touched):
    """The rows [20, W] after all steps, from values that are a function of their position."""
    table = torch.zeros(20, DIMENSION + optimizer.state_width(DIMENSION))
    table[:, :DIMENSION] = torch.arange(20 * DIMENSION).view(20, DIMENSION) / 100
    for step, (rows, gradients) in enumerate(touched, start=1):
        table[rows] = updated_rows(table[rows], gradients, optimizer, step, optimizer.learning_rate)
    return table


def train_with_torch(optimizer, touched):
    weight = torch.nn.Parameter(torch.arange(20 * DIMENSION).view(20, DIMENSION) / 100)
    make = optimizer([weight])
    for rows, gradients in touched:
        order = rows.argsort()
        weight.grad = torch.sparse_coo_tensor(
            rows[order][None], gradients[order], weight.shape, is_coalesced=True, check_invariants=False
        )
        make.step()
    return weight.detach()


def test_sgd_is_torch_sgd(touched):
    rows = train(OptimizerSpec(OptimizerKind.SGD, learning_rate=0.1), touched)
    torch.testing.assert_close(rows, train_with_torch(lambda p: torch.optim.SGD(p, lr=0.1), touched))


def test_adam_is_torch_sparse_adam(touched):
    rows = train(OptimizerSpec(OptimizerKind.ADAM, learning_rate=0.1), touched)
    expected = train_with_torch(lambda p: torch.optim.SparseAdam(p, lr=0.1, betas=(0.9, 0.999), eps=1e-8), touched)
    torch.testing.assert_close(rows[:, :DIMENSION], expected)


def test_adagrad_keeps_one_mean_square_per_row(touched):
    rows = train(OptimizerSpec(OptimizerKind.ROWWISE_ADAGRAD, learning_rate=0.1, epsilon=1e-6), touched)
    for row in range(20):
        value = [(row * DIMENSION + column) / 100 for column in range(DIMENSION)]
        total = 0.0
        for trained, gradients in touched:
            for gradient in gradients[trained == row].tolist():
                total += sum(g * g for g in gradient) / DIMENSION
                value = [v - 0.1 * g / (total**0.5 + 1e-6) for v, g in zip(value, gradient, strict=True)]
        torch.testing.assert_close(rows[row], torch.tensor([*value, total]))


@pytest.mark.parametrize("max_norm", [0.0, 2.0])
@pytest.mark.parametrize("kind", OptimizerKind, ids=lambda kind: kind.value)
def test_the_parameter_server_updates_split_rows_alike(touched, kind, max_norm):
    optimizer = OptimizerSpec(kind, learning_rate=0.1, epsilon=1e-6, max_norm=max_norm)
    table = torch.zeros(20, DIMENSION + optimizer.state_width(DIMENSION))
    table[:, :DIMENSION] = torch.arange(20 * DIMENSION).view(20, DIMENSION) / 100
    native = table.numpy().copy()
    for step, (trained, gradients) in enumerate(touched, start=1):
        table[trained] = updated_rows(table[trained], gradients, optimizer, step, optimizer.learning_rate)
        block = native[trained.numpy()]
        rates, steps = np.full(len(block), optimizer.learning_rate, np.float32), np.full(len(block), step, np.uint32)
        apply_optimizer(optimizer, block, gradients.numpy(), steps, rates)
        native[trained.numpy()] = block
    # Equal but for the rounding of the mean of the squares and of the bias correction.
    torch.testing.assert_close(torch.from_numpy(native), table, rtol=1e-6, atol=1e-7)


def test_trained_rows_are_limited_as_torch_renormalises_them(touched):
    """torch.renorm follows each step, for the trained rows alone."""
    rows = train(OptimizerSpec(OptimizerKind.SGD, learning_rate=0.1, max_norm=1.5), touched)
    weight = torch.arange(20 * DIMENSION).view(20, DIMENSION) / 100
    for trained, gradients in touched:
        weight[trained] = torch.renorm(weight[trained] - 0.1 * gradients, 2, 0, 1.5)
    torch.testing.assert_close(rows, weight)
    ever = torch.cat([trained for trained, _ in touched]).unique()
    assert rows[ever].norm(dim=1).max() < 1.5 + 1e-6
