"""A step refuses calls out of order and shapes that mean something else, and has no effect once a worker is lost."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from esd.services.domain.dense_roles import DenseRole
from esd.services.domain.errors import FailedPrecondition, InvalidArgument, Unavailable
from esd.services.domain.features import Feature, Pooling
from esd.services.domain.sum_pieces import SumPiece, pieces_of_shard
from esd.services.domain.tables import OptimizerKind, OptimizerSpec, TableSpec
from esd.services.wire.sums import encode_pieces
from esd.session import OwnModel
from esd.worker.training.all_reduce import RingReducer
from esd.worker.training.reducer import Alone
from esd.worker.training.rows import RowCache
from esd.worker.training.server_sum import ServerReducer
from esd.worker.training.step import Steps
from tests.support.free_link import FreeLink
from tests.support.reference import initial_rows

CPU = torch.device("cpu")
ROWS = 8


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4 * 5 + 3, 1)

    def forward(self, embeddings, dense):
        return self.layer(torch.cat((*embeddings.values(), dense), dim=1))


class LostGroup:
    """An all-reduce whose peers are gone."""

    def allreduce(self, _tensors):
        raise RuntimeError("connection closed by peer")


class RecordingGroup:
    """An all-reduce that changes nothing, and records its calls beside other events."""

    def __init__(self):
        self.events = []

    def allreduce(self, _tensors):
        self.events.append("a sum starts")
        return SimpleNamespace(wait=lambda _within: self.events.append("a sum ends"))


class RecordingSums:
    """Sums at a server that change nothing, and of which each notes whether its values are sent."""

    def __init__(self):
        self.bytes_sent = 0

    def start(self, iteration, vector, *, zeros, wanted):
        names = pieces_of_shard(iteration, 0, vector, shard=0, shards=1)
        pieces = [SumPiece(name, None if zeros else vector[name.start : name.start + name.values]) for name in names]
        self.bytes_sent += sum(len(encode_pieces([piece], 0)) for piece in pieces)
        done = Future()
        done.set_result(None)
        return done


@pytest.fixture
def begin(plans, make_job):
    """Begins a step of two samples of four ids each, over the rows of a cache that it returns, too."""

    def begin(
        group=None, samples=2, labels=1, contributors=0b1, rows_trained=lambda: None, trained=True, sums=None,
        role=DenseRole.TRAINS,
    ):  # fmt: skip
        job = make_job(optimizer=OptimizerSpec(OptimizerKind.SGD, learning_rate=0.1))
        cache = RowCache(ROWS, job.table.row_width, CPU)
        cache.write(np.arange(ROWS, dtype=np.uint32), np.ones((ROWS, job.table.row_width), np.float32))
        net = Net().requires_grad_(trained)
        trains = [each for each in net.parameters() if each.requires_grad]
        own = OwnModel(net, torch.optim.SGD([{"params": trains}], lr=0.1))
        reducer = ServerReducer(sums) if sums else RingReducer(group, 2, FreeLink()) if group else Alone()
        dense = own.of_epoch(job, reducer, CPU)
        ids = 4 * samples
        plan = plans.plan(0, train=[(x, x, 0, contributors) for x in range(ids)])
        plan = replace(
            plan,
            dense_role=role,
            batch_size=4,
            positions=np.arange(samples, dtype=np.uint32),
            dense=np.ones((samples, 3), np.float32),
            labels=np.ones((samples, labels), np.float32),
        )
        return Steps(job, [cache], dense, CPU).begin(plan, rows_trained), cache, net

    return begin


def losses_of(step, net):
    outputs = net(step.embeddings, step.dense)
    return nn.functional.binary_cross_entropy_with_logits(outputs, step.labels, reduction="none"), outputs.sigmoid()


def test_gradients_are_those_of_the_mean_over_the_global_batch(begin):
    step, cache, net = begin()
    outputs = net(step.embeddings, step.dense)
    expected = torch.autograd.grad(
        nn.functional.binary_cross_entropy_with_logits(outputs, step.labels, reduction="sum") / 4, net.layer.weight
    )
    losses, scores = losses_of(step, net)
    step.backward(losses, scores=scores)
    torch.testing.assert_close(net.layer.weight.grad, expected[0])
    before, rows = net.layer.weight.detach().clone(), cache.rows.clone()
    step.optimise()
    torch.testing.assert_close(net.layer.weight.detach(), before - 0.1 * expected[0])
    assert net.layer.weight.grad is None, "the next backward pass would add to it"
    assert torch.equal(cache.rows, rows), "rows are trained by backward"
    assert not torch.equal(rows, torch.ones_like(rows))
    assert step.result().loss_sum == pytest.approx(losses.sum().item())


def test_ids_that_are_not_admitted_read_initial_rows_and_train_nothing(plans, make_job):
    """Of two tables, with a list each; the second sample has the admitted ids between the others."""
    job = make_job(optimizer=OptimizerSpec(OptimizerKind.SGD, learning_rate=0.1))
    second = TableSpec("second", 3, job.table.optimizer, seed=99, init_scale=0.5)
    features = tuple(Feature(name, table, Pooling.SUM, 8) for name, table in (("a", 0), ("b", 1)))
    job = replace(job, tables=(job.table, second), features=features)
    caches = [RowCache(ROWS, table.row_width, CPU) for table in job.tables]
    for cache in caches:
        cache.write(np.arange(ROWS, dtype=np.uint32), np.ones((ROWS, cache.width), np.float32))
    of_second = 1 << 56
    plan = replace(
        plans.plan(0, train=[(5, 2, 0, 0b1), (of_second + 6, 3, 0, 0b1)]),
        initial_ids=np.array([4, 9, of_second + 7], np.uint64),
        lengths=np.array([[2, 1], [3, 2]], np.uint32),
        inverse=np.array([2, 0, 4, 3, 0, 2, 4, 1], np.uint32),  # of u = 2 unique ids, and 3 others
    )
    net = nn.Linear(1, 1)
    own = OwnModel(net, torch.optim.SGD(net.parameters(), lr=0.1)).of_epoch(job, Alone(), CPU)
    step = Steps(job, caches, own, CPU).begin(plan)

    initial = {x: torch.from_numpy(initial_rows(job.table, np.array([x], np.uint64))[0]) for x in (4, 9)}
    other = torch.from_numpy(initial_rows(second, np.array([of_second + 7], np.uint64))[0])
    ones, three = torch.ones(job.table.dimension), torch.ones(3)
    torch.testing.assert_close(
        step.embeddings["a"].detach(), torch.stack([initial[4] + ones, initial[9] + ones + initial[4]])
    )
    torch.testing.assert_close(step.embeddings["b"].detach(), torch.stack([other, other + three]))

    losses = step.embeddings["a"].sum(dim=1) + 2 * step.embeddings["b"].sum(dim=1)
    step.backward(losses, scores=torch.zeros(2))
    for cache, slot, gradient in ((caches[0], 2, 2 / 2), (caches[1], 3, 2 / 2)):  # 2 samples, then once times 2
        expected = torch.ones(ROWS, cache.width)
        expected[slot] -= 0.1 * gradient
        torch.testing.assert_close(cache.rows, expected)
    step.optimise()


def test_calls_out_of_order_are_refused_by_name(begin):
    step, _, net = begin()
    with pytest.raises(FailedPrecondition, match=r"step.optimise was called.*step.backward comes next"):
        step.optimise()
    with pytest.raises(FailedPrecondition, match=r"left iteration 0 without a call of step.backward"):
        step.result()
    losses, scores = losses_of(step, net)
    step.backward(losses, scores=scores)
    with pytest.raises(FailedPrecondition, match=r"step.backward was called.*step.optimise comes next"):
        step.backward(losses, scores=scores)
    with pytest.raises(FailedPrecondition, match=r"left iteration 0 without a call of step.optimise"):
        step.result()
    step.optimise()
    with pytest.raises(FailedPrecondition, match=r"step.optimise was called.*the step is over"):
        step.optimise()


@pytest.mark.parametrize(
    ("losses", "scores", "message"),
    [
        (torch.ones(()), torch.zeros(2), r'losses of iteration 0 are \[\].*\[2\] or \[2, 1\].*reduction="none"'),
        (torch.ones(3), torch.zeros(2), r"losses of iteration 0 are \[3\]"),
        (1.0, torch.zeros(2), "losses of iteration 0 are float"),
        (torch.ones(2), torch.zeros(1), r"scores of iteration 0 are \[1\]"),
        (torch.ones(2), torch.tensor([0.5, 1.5]), r"scores of iteration 0 are in 0.5..1.5.*sigmoid"),
        (torch.ones(2), torch.tensor([0.5, float("nan")]), "must be probabilities"),
    ],
)
def test_losses_and_scores_of_another_meaning_are_refused(begin, losses, scores, message):
    step, cache, _ = begin()
    with pytest.raises(InvalidArgument, match=message):
        step.backward(losses, scores=scores)
    assert torch.equal(cache.rows, torch.ones_like(cache.rows))


def test_a_step_with_several_labels_averages_them_and_reports_each(begin):
    step, _, net = begin(labels=2)
    outputs = net(step.embeddings, step.dense).expand(2, 2)
    losses = torch.stack((outputs[:, 0] * 0 + 1, outputs[:, 1] * 0 + 3), dim=1)
    step.backward(losses, scores=outputs.sigmoid())
    step.optimise()
    result = step.result()
    assert (result.loss_sum, result.label_loss_sums) == (4.0, (2.0, 6.0))
    assert result.score_bins.shape == (2, 2)


def test_a_step_without_samples_is_taken_as_any_other(begin):
    step, cache, net = begin(samples=0)
    losses, scores = losses_of(step, net)
    before = net.layer.weight.detach().clone()
    step.backward(losses, scores=scores)
    step.optimise()
    assert (step.result().loss_sum, len(step.result().score_bins)) == (0.0, 0)
    assert torch.equal(net.layer.weight, before)
    assert torch.equal(cache.rows, torch.ones_like(cache.rows))


@pytest.mark.parametrize("contributors", [0b1, 0], ids=["rows of its own", "replicated rows"])
def test_a_worker_without_samples_sends_no_gradients_to_the_server(begin, contributors):
    sent = []
    for samples in (2, 0):
        sums = RecordingSums()
        step, _, net = begin(samples=samples, contributors=contributors, sums=sums)
        losses, scores = losses_of(step, net)
        step.backward(losses, scores=scores)
        step.optimise()
        sent.append(sums.bytes_sent)
    assert sent[0] > 4 * (4 * 5 + 3 + 1), "the gradients"
    assert sent[1] < 32, "the names of the pieces"


class LostSums:
    """Sums at a server, of which no other worker takes part."""

    def start(self, iteration, vector, *, zeros, wanted):
        done = Future()
        done.set_exception(Unavailable("worker slot 1 left the sums of epoch 0"))
        return done


def test_a_worker_that_returns_and_gets_no_state_trains_nothing(begin):
    step, cache, net = begin(sums=LostSums(), role=DenseRole.RETURNS)
    before = net.layer.weight.detach().clone()
    losses, scores = losses_of(step, net)
    step.backward(losses, scores=scores)
    step.optimise()
    assert torch.equal(net.layer.weight, before)
    assert torch.equal(cache.rows, torch.ones_like(cache.rows))
    with pytest.raises(Unavailable, match="worker slot 1 left the sums"):
        step.result()


def test_once_a_worker_is_lost_a_step_has_no_effect_and_the_loop_does_not_see_it(begin):
    step, _, net = begin(group=LostGroup())
    before = net.layer.weight.detach().clone()
    losses, scores = losses_of(step, net)
    step.backward(losses, scores=scores)
    step.optimise()
    assert torch.equal(net.layer.weight, before)
    with pytest.raises(Unavailable, match="another worker is lost"):
        step.result()


def test_rows_of_one_worker_may_leave_before_the_sums_end_and_replicated_ones_after_them(begin):
    for contributors, early in ((0b1, True), (0, False)):
        group = RecordingGroup()
        step, _, net = begin(
            group=group, contributors=contributors, rows_trained=lambda group=group: group.events.append("rows")
        )
        losses, scores = losses_of(step, net)
        step.backward(losses, scores=scores)
        step.optimise()
        assert group.events.count("rows") == 1
        assert (group.events.index("rows") < group.events.index("a sum ends")) == early


def test_a_model_without_trained_parameters_sums_all_the_same(begin):
    """Each sum is the barrier on which checkpoints rely."""
    group = RecordingGroup()
    step, _, net = begin(group=group, trained=False)
    losses, scores = losses_of(step, net)
    step.backward(losses, scores=scores)
    step.optimise()
    assert group.events == ["a sum starts", "a sum ends"]
