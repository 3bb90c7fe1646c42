"""Replays of runs that went back to a checkpoint."""

from dataclasses import replace

import pytest

from esd.dispatcher.core.decision_log import CheckpointPlanned, EpochBegan, IterationPlanned, JobOpened, StreamEnded
from esd.dispatcher.core.planner import Planner
from esd.dispatcher.simulator.decision_replay import replay_decisions
from esd.dispatcher.simulator.simulate import simulate
from esd.services.domain.errors import InvalidArgument
from esd.services.wire.plans import digest_of

BANDWIDTHS, CACHES = [1e6, 2e6, 5e6], [40, 40, 40]


@pytest.fixture
def job(make_job):
    return make_job(workers=3, batch_size=12, mechanism="esd", checkpoint_every=5)


@pytest.fixture
def stream(make_batches):
    return make_batches(14, samples=12, fields=3, rows=90, seed=4)


def recorded(job, stream, caches=CACHES):
    """Epoch 1 is lost after iteration 8, and epoch 2 goes on without worker 0, with these caches, from checkpoint 5."""
    planner = Planner(job, BANDWIDTHS, CACHES, epoch=1)
    records = [JobOpened({}), EpochBegan(1, 0, list(job.workloads), None, BANDWIDTHS, CACHES)]
    decisions, snapshot = {}, b""
    for t in range(9):
        if t == 5:
            _, snapshot = planner.checkpoint()
            records.append(CheckpointPlanned(5))
        decisions[t] = planner.plan(stream[t])
        records.append(IterationPlanned(t, digest_of(decisions[t].messages)))
    two = replace(job, workloads=(0, 6, 6))
    warm = caches == CACHES
    planner = Planner(two, BANDWIDTHS, caches, epoch=2, snapshot=snapshot, warm=warm)
    records.append(EpochBegan(2, 5, [0, 6, 6], None, BANDWIDTHS, caches, warm=warm))
    for t in range(5, 14):
        if t == 10:
            planner.checkpoint()
            records.append(CheckpointPlanned(10))
        decisions[t] = planner.plan(stream[t])
        records.append(IterationPlanned(t, digest_of(decisions[t].messages)))
    return [*records, StreamEnded(14)], decisions


@pytest.mark.parametrize("caches", [CACHES, [40, 60, 40]], ids=["same caches", "a larger cache"])
def test_iterations_that_were_trained_twice_count_once(job, stream, caches):
    records, decisions = recorded(job, stream, caches)
    totals = replay_decisions(lambda: records, job, lambda: iter(stream), digest_of)
    assert (totals.iterations, totals.samples) == (14, 14 * 12)
    for kind in ("miss_pull", "update_push", "evict_push"):
        expected = sum(getattr(decision.operations, kind) for decision in decisions.values())
        assert getattr(totals.operations, kind).tolist() == expected.tolist()
    assert totals.cost_seconds == pytest.approx(sum(decision.cost_seconds for decision in decisions.values()))


def test_an_undisturbed_run_has_the_totals_of_the_simulator(job, stream):
    records, _ = recorded(job, stream)
    undisturbed = records[: records.index(next(r for r in records if isinstance(r, EpochBegan) and r.epoch == 2))]
    totals = replay_decisions(lambda: undisturbed, job, lambda: iter(stream), digest_of)
    simulated = simulate(Planner(job, BANDWIDTHS, CACHES), stream[:9])
    assert totals.operations.total.tolist() == simulated.operations.total.tolist()
    assert totals.cost_seconds == simulated.cost_seconds


def test_epochs_go_back_to_checkpoints_of_long_ago_and_again(job, stream):
    """As `esd checkpoint restore` has a job do, and checkpoints that were planned and could not be written."""
    planner = Planner(job, BANDWIDTHS, CACHES, epoch=1)
    records = [JobOpened({}), EpochBegan(1, 0, list(job.workloads), None, BANDWIDTHS, CACHES)]
    snapshots = {}
    for t in range(12):
        if t in (2, 4, 6, 8):
            _, snapshots[t] = planner.checkpoint()
            records.append(CheckpointPlanned(t))
        records.append(IterationPlanned(t, digest_of(planner.plan(stream[t]).messages)))
    for epoch in (2, 3):
        planner = Planner(job, BANDWIDTHS, CACHES, epoch=epoch, snapshot=snapshots[2])
        records.append(EpochBegan(epoch, 2, list(job.workloads), None, BANDWIDTHS, CACHES))
        records += [IterationPlanned(t, digest_of(planner.plan(stream[t]).messages)) for t in range(2, 12)]
    totals = replay_decisions(lambda: [*records, StreamEnded(12)], job, lambda: iter(stream[:12]), digest_of)
    assert totals.iterations == 12


def test_a_checkpoint_that_the_log_does_not_have_is_named(job, stream):
    records, _ = recorded(job, stream)
    second = next(i for i, record in enumerate(records) if isinstance(record, EpochBegan) and record.epoch == 2)
    with pytest.raises(InvalidArgument, match="epoch 2 begins at checkpoint 5, which is not in the decision log"):
        replay_decisions(lambda: records[second:], job, lambda: iter(stream), digest_of)


def test_a_run_that_went_on_from_another_one_is_refused(job):
    with pytest.raises(InvalidArgument, match=r"from iteration 5 of another run \(--continue-from\)"):
        replay_decisions(list, replace(job, first_iteration=5), lambda: iter([]), digest_of)


def test_decisions_before_an_epoch_are_refused(job, stream):
    with pytest.raises(InvalidArgument, match="before its first epoch"):
        replay_decisions(lambda: [StreamEnded(0)], job, lambda: iter(stream), digest_of)
