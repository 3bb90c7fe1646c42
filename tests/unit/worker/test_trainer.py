"""A trainer against plain PyTorch: nn.Embedding, the same batches, no cache."""

import io
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from esd.services.domain.dense_sums import Every
from esd.services.domain.errors import FailedPrecondition, Unavailable
from esd.services.domain.tables import OptimizerKind, OptimizerSpec
from esd.worker.models import build_model
from esd.worker.training.dense import DenseParameters
from esd.worker.training.optimizers import JobOptimizer
from esd.worker.training.reducer import Alone
from esd.worker.training.rows import RowCache
from esd.worker.training.trainer import Trainer
from tests.support.models import POOLED
from tests.support.reference import by_feature

CPU = torch.device("cpu")
IDS, FIELDS, BATCH = 30, 4, 8
ALONE, SHARED = 0b1, 0b11


@pytest.fixture
def samples():
    """Ten global batches: ids [k, F], dense [k, 3], labels [k]."""
    rng = np.random.default_rng(5)
    return [
        (
            rng.integers(0, IDS, (BATCH, FIELDS)),
            rng.normal(size=(BATCH, 3)).astype(np.float32),
            rng.integers(0, 2, (BATCH, 1)).astype(np.float32),
        )
        for _ in range(10)
    ]


def initial_rows(width, dimension):
    rows = np.zeros((IDS, width), np.float32)
    rows[:, :dimension] = np.random.default_rng(6).normal(size=(IDS, dimension))
    return rows


class Twins:
    """The sums of two workers with the same gradients."""

    waiting = False

    def __init__(self):
        self._started = []
        self.waits = 0

    def begin(self, iteration):
        pass

    def start(self, gradients, *, zeros=False):
        self._started.append(gradients)

    def wait(self):
        self.waits += 1
        for each in self._started:
            each.mul_(2)
        self._started.clear()

    def close(self):
        pass


def trainer_of(job, device=CPU, reducer=None):
    """A trainer whose cache holds id x in slot IDS - 1 - x."""
    cache = RowCache(IDS, job.table.row_width, device)
    cache.write(np.arange(IDS, dtype=np.uint32)[::-1].copy(), initial_rows(job.table.row_width, job.table.dimension))
    return Trainer(job, [cache], reducer or Alone(), device), cache


def plan_of(plans, iteration, batch, contributors=ALONE):
    ids, dense, labels = batch
    unique, inverse = np.unique(ids, return_inverse=True)
    plan = plans.plan(iteration, train=[(x, IDS - 1 - x, iteration, contributors) for x in unique.tolist()])
    inverse = inverse.reshape(-1).astype(np.uint32)
    return replace(plan, batch_size=BATCH, inverse=inverse, dense=dense, labels=labels)


def train(plans, job, samples, device):
    trainer, cache = trainer_of(job, device)
    results = [trainer.step(plan_of(plans, t, batch)) for t, batch in enumerate(samples)]
    rows = cache.read(np.arange(IDS, dtype=np.uint32)[::-1].copy(), job.table.row_width)
    return rows, trainer.dense.to_npz(), results


OPTIMIZERS = {
    OptimizerKind.SGD: (
        lambda rows: torch.optim.SGD(rows, lr=0.1),
        lambda dense: torch.optim.SGD(dense, lr=0.1),
    ),
    OptimizerKind.ADAM: (
        lambda rows: torch.optim.SparseAdam(rows, lr=0.1),
        lambda dense: torch.optim.Adam(dense, lr=0.1),
    ),
}


@pytest.mark.parametrize("kind", OPTIMIZERS, ids=lambda kind: kind.value)
@pytest.mark.parametrize("model", POOLED)
def test_trains_as_plain_pytorch_does(plans, make_job, samples, device, model, kind):
    job = make_job(model=model, optimizer=OptimizerSpec(kind, learning_rate=0.1))
    rows, trained_dense, results = train(plans, job, samples, device)

    reference = build_model(job)
    table = torch.nn.Embedding.from_pretrained(torch.tensor(initial_rows(5, 5)), freeze=False, sparse=True)
    make_row_optimizer, make_dense_optimizer = OPTIMIZERS[kind]
    optimizers = [make_row_optimizer(table.parameters()), make_dense_optimizer(reference.parameters())]
    for (ids, dense, labels), result in zip(samples, results, strict=True):
        logits = reference(by_feature(job, table(torch.from_numpy(ids))), torch.from_numpy(dense)).view(-1)
        loss = functional.binary_cross_entropy_with_logits(logits, torch.from_numpy(labels[:, 0]))
        assert result.loss_sum / BATCH == pytest.approx(loss.item(), rel=1e-4)
        np.testing.assert_allclose(result.score_bins[:, 0] / 65536, logits.detach().sigmoid().numpy(), atol=1e-3)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
    torch.testing.assert_close(torch.from_numpy(rows)[:, :5], table.weight.detach(), rtol=1e-3, atol=1e-4)
    dense_parameters = np.load(io.BytesIO(trained_dense))
    for name, parameter in reference.named_parameters():
        actual = torch.from_numpy(dense_parameters[name])
        torch.testing.assert_close(actual, parameter.detach(), rtol=1e-3, atol=1e-4)


def test_a_worker_that_is_lost_in_an_average_ends_the_step_by_name(plans, make_job, samples):
    """Two workers do the same. The average is the third sum: the second iteration has its barrier before."""

    class Leaves(Twins):
        def wait(self):
            super().wait()
            if self.waits == 3:
                raise Unavailable("worker 1 is lost")

    reducer = Leaves()
    trainer, _ = trainer_of(replace(make_job(), dense_sum=Every(2)), reducer=reducer)
    assert trainer.step(plan_of(plans, 0, samples[0])).drift == 0
    with pytest.raises(Unavailable, match="worker 1 is lost"):
        trainer.step(plan_of(plans, 1, samples[1]))
    assert reducer.waits == 3


@pytest.mark.parametrize("kind", OptimizerKind, ids=lambda kind: kind.value)
@pytest.mark.parametrize("clip_norm", [0.02, 1e6], ids=["clipped", "short"])
def test_weights_decay_and_gradients_are_clipped_as_in_torch(make_job, kind, clip_norm):
    job = make_job(optimizer=OptimizerSpec(kind, learning_rate=9.0))
    layers = torch.nn.Linear(5, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1)
    model = torch.nn.Sequential(*layers)
    reference = deepcopy(model)
    spec, rates = replace(job.model, weight_decay=0.1, clip_norm=clip_norm), (0.1, 0.03, 0.0, 0.2)
    dense = DenseParameters(
        model, Alone(), lambda buckets: JobOptimizer(buckets, spec, lambda iteration: rates[iteration])
    )
    optimizer = {
        OptimizerKind.SGD: lambda: torch.optim.SGD(reference.parameters(), weight_decay=0.1),
        OptimizerKind.ROWWISE_ADAGRAD: lambda: torch.optim.Adagrad(reference.parameters(), weight_decay=0.1, eps=1e-8),
        OptimizerKind.ADAM: lambda: torch.optim.Adam(reference.parameters(), weight_decay=0.1),
    }[kind]()
    for iteration, rate in enumerate(rates):
        values = torch.randn(6, 5, generator=torch.Generator().manual_seed(1))
        for each in (model, reference):
            each.zero_grad()
            each(values).sum().div(8).backward()
        dense.wait()
        dense.step(iteration)
        torch.nn.utils.clip_grad_norm_(reference.parameters(), clip_norm)
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()
    for name, parameter in reference.named_parameters():
        actual = torch.from_numpy(np.load(io.BytesIO(dense.to_npz()))[name])
        torch.testing.assert_close(actual, parameter.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", OptimizerKind, ids=lambda kind: kind.value)
def test_two_runs_are_bit_identical(plans, make_job, samples, device, kind):
    job = make_job(optimizer=OptimizerSpec(kind, learning_rate=0.1))
    rows, dense, _ = train(plans, job, samples, device)
    again, dense_again, _ = train(plans, job, samples, device)
    np.testing.assert_array_equal(rows, again)
    assert dense == dense_again


def test_shared_rows_keep_their_gradient_for_the_push(plans, make_job, samples, device):
    """With SGD, the value minus lr times the partial gradient is the result of training alone."""
    job = make_job(optimizer=OptimizerSpec(OptimizerKind.SGD, learning_rate=0.1))
    shared, cache = trainer_of(job, device)
    shared.step(plan_of(plans, 0, samples[0], SHARED))
    alone, cache_alone = trainer_of(job, device)
    alone.step(plan_of(plans, 0, samples[0], ALONE))
    slots = plan_of(plans, 0, samples[0]).unique_slots
    before = torch.from_numpy(initial_rows(5, 5)[::-1][slots].copy())
    gradients = torch.from_numpy(cache.read(slots, 5))
    torch.testing.assert_close(before - 0.1 * gradients, torch.from_numpy(cache_alone.read(slots, 5)))


@pytest.mark.parametrize("kind", OptimizerKind, ids=lambda kind: kind.value)
def test_nobody_reads_the_optimizer_state_of_a_split_row(plans, make_job, samples, device, kind):
    """It was not pulled, so anything may lie there: a training among others leaves the same gradients in its place."""
    job = make_job(optimizer=OptimizerSpec(kind, learning_rate=0.1))
    dimension = job.table.dimension
    outcomes = []
    for state in (0.0, np.nan):
        trainer, cache = trainer_of(job, device)
        cache.rows[:, dimension:] = state
        plan = plan_of(plans, 0, samples[0], SHARED)
        result = trainer.step(plan)
        gradients = cache.read(plan.unique_slots, dimension)
        assert np.isfinite(gradients).all()
        outcomes.append((gradients.tobytes(), trainer.dense.to_npz(), result.loss_sum, result.score_bins.tobytes()))
    assert outcomes[0] == outcomes[1]


def test_a_worker_without_samples_changes_nothing(plans, make_job, device):
    trainer, cache = trainer_of(make_job(), device)
    before, dense = cache.rows.clone(), trainer.dense.to_npz()
    result = trainer.step(plans.plan(0))
    assert (result.loss_sum, len(result.score_bins)) == (0.0, 0)
    assert torch.equal(cache.rows, before)
    assert trainer.dense.to_npz() == dense


def test_divergence_stops_before_a_row_is_spoilt(plans, make_job, samples):
    trainer, cache = trainer_of(make_job())
    ids, dense, labels = samples[0]
    before = cache.rows.clone()
    with pytest.raises(FailedPrecondition, match=r"loss of iteration 0 is nan.*learning rate"):
        trainer.step(plan_of(plans, 0, (ids, np.full_like(dense, np.nan), labels)))
    assert torch.equal(cache.rows, before)
