"""Balanced workloads of whole jobs: their start, the measurements that they follow, and their limits."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from esd.dispatcher.core.feedback import Feedback
from esd.dispatcher.core.planner import Planner
from esd.dispatcher.core.workloads import BalancedWorkloads
from esd.dispatcher.simulator.simulate import simulate
from esd.services.domain.dense_roles import DenseRole, resting
from esd.services.domain.dense_sums import ServerSum
from esd.services.domain.errors import InvalidArgument, ResourceExhausted

UNEQUAL = [625e6, 625e6, 62.5e6, 62.5e6]
EQUAL = [625e6] * 4
FIELDS, SAMPLES = 6, 64
MECHANISMS = ["random", "laia", "hash", "history", "esd", "joint"]


@pytest.fixture
def job(make_job):
    def build(**changes):
        values = {"batch_size": SAMPLES, "fields": FIELDS, "workload_limits": (1, SAMPLES), "window": 4} | changes
        return make_job(**values)

    return build


def drive(planner, batches, sample_seconds, summing=None):
    """Plans batches, with feedback of modelled times a window later; returns decisions and every iteration's times.

    `sample_seconds` [n] may be a function of the iteration; `summing` [n] are seconds of dense sums on the links.
    """
    told, decisions, times = [], [], []
    for t, batch in enumerate(batches):
        if t >= planner.job.window:
            planner.observe(Feedback(told[t - planner.job.window], np.zeros(planner.job.workers), 0.0, summing))
        decision = planner.plan(batch)
        computing = sample_seconds(t) if callable(sample_seconds) else sample_seconds
        told.append(decision.link_seconds + np.array(computing) * decision.workloads)
        decisions.append(decision)
        times.append(told[-1])
    return decisions, np.array(times)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_balanced_beats_equal_and_every_list_nearly(job, make_batches, mechanism):
    batches = make_batches(60, samples=SAMPLES, fields=FIELDS, rows=3000, seed=1)
    computing = [1e-6] * 4

    def makespan(**changes):
        _, times = drive(Planner(job(mechanism=mechanism, **changes), UNEQUAL, [600] * 4), batches, computing)
        return times[5:].max(axis=1).sum()

    balanced, equal = makespan(), makespan(workload_limits=None)
    lists = [(fast, fast, 32 - fast, 32 - fast) for fast in range(18, 32, 2)]
    best = min(makespan(workload_limits=None, workloads=workloads) for workloads in lists)
    assert balanced < 0.7 * equal
    assert balanced < 1.05 * best


@pytest.mark.parametrize("mechanism", ["random", "joint"])
def test_links_that_are_busy_with_dense_sums_carry_few_rows(job, make_batches, mechanism):
    """Rows alone would give the slow workers more samples, whose rows would prolong the time of their sums."""
    batches = make_batches(60, samples=SAMPLES, fields=FIELDS, rows=3000, seed=1)

    def train(summing):
        planner = Planner(job(mechanism=mechanism, workload_limits=(0, SAMPLES)), UNEQUAL, [600] * 4)
        decisions, times = drive(planner, batches, [1e-6] * 4, summing)
        return times[20:], decisions[-1].workloads

    unknown, many = train(None)
    dense = 2 * unknown.max(axis=1).mean() * np.array([0.1, 0.1, 1.0, 1.0])  # twice the time of the rows, on slow links
    known, few = train(dense)
    assert few.sum() == SAMPLES
    assert few[2:].sum() < many[2:].sum() / 2
    assert (known + dense).max(axis=1).mean() < 0.9 * (unknown + dense).max(axis=1).mean()


def with_sums(planner, batches, job, summing_at):
    """Plans the batches, where a worker's sums take `summing_at(t)` [n] seconds, and none while it rests.

    Returns workloads, roles and the times of whole iterations.
    """
    told, decisions = [], []
    for t, batch in enumerate(batches):
        if t >= job.window:
            seconds, summing = told[t - job.window]
            planner.observe(Feedback(seconds, np.zeros(4), 0.0, summing))
        decision = planner.plan(batch)
        decisions.append(decision)
        summing = summing_at(t) * ~resting(decision.roles) * (1 + (decision.roles == DenseRole.RETURNS))
        told.append((decision.link_seconds + 1e-7 * decision.workloads, summing))
    spent = np.array([sum(times).max() for times in told])
    return np.array([each.workloads for each in decisions]), np.array([each.roles for each in decisions]), spent


def test_a_worker_that_is_left_out_is_tried_again_and_returns_when_its_link_recovers(job, make_batches):
    """The links of workers 2 and 3 are busy with sums; worker 3's is free from iteration 500 on."""
    batches = make_batches(1200, samples=SAMPLES, fields=FIELDS, rows=3000, seed=1)
    job = replace(job(mechanism="random", workload_limits=(0, SAMPLES)), dense_sum=ServerSum())
    planner = Planner(job, EQUAL, [600] * 4, rests=True)
    busy, free = np.array([1e-6, 1e-6, 4e-5, 4e-5]), np.array([1e-6, 1e-6, 4e-5, 1e-6])
    workloads, _, spent = with_sums(planner, batches, job, lambda t: busy if t < 500 else free)
    works = workloads > 0
    tried = works[100:500, 2:].any(axis=1)
    assert tried.any()
    assert spent[100:500][tried].sum() < 0.05 * spent[100:500].sum()
    assert works[20:, :2].all()
    assert not works[-100:, 2].all()
    first = 500 + int(np.argmax(works[500:, 3]))
    assert works[first + 4 + 2 * job.window :, 3].all(), "one trial tells"
    assert np.mean(workloads[-100:], axis=0)[3] == pytest.approx(SAMPLES / 3, rel=0.2)


@pytest.mark.parametrize(("sums", "rest"), [(1e-5, False), (2e-5, True)])
def test_workers_whose_sums_take_about_an_iteration_stay_or_rest(job, make_batches, sums, rest):
    """Workers 0 and 1 alone need 2e-5 seconds."""
    batches = make_batches(600, samples=SAMPLES, fields=FIELDS, rows=3000, seed=1)
    job = replace(job(mechanism="laia", workload_limits=(0, SAMPLES)), dense_sum=ServerSum())
    planner = Planner(job, EQUAL, [600] * 4, rests=True)
    workloads, roles, spent = with_sums(planner, batches, job, lambda t: sums * np.array([0, 0, 1, 1]))
    returns = (roles == DenseRole.RETURNS).sum(axis=0)
    assert ((workloads[50:, 2:] > 0).mean(axis=0) < 0.1).tolist() == [rest, rest]
    assert (returns <= [0, 0, 8, 8]).all() if rest else not returns.any(), "they come and go"
    assert spent[50:].mean() < 2.15e-5


@pytest.mark.parametrize("fixed", [[0.0, 0.0, 0.0], [0.0, 1.0, 4.0], [0.0, 2.0, 500.0]])
def test_fixed_parts_of_times_leave_all_workers_the_same_end(fixed):
    """Paces 1, 1 and 2: worker j needs f_j + p_j m^0.8 seconds."""
    paces, fixed = np.array([1.0, 1.0, 2.0]), np.array(fixed)
    balance = BalancedWorkloads(600, [0] * 3, [600] * 3, paces * 200**0.8)
    workloads = balance.current(None, fixed)
    ends = fixed + paces * workloads**0.8
    assert workloads.sum() == 600
    assert ends[workloads > 0].max() < 1.02 * ends[workloads > 0].min()
    assert (fixed[workloads == 0] > ends[workloads > 0].max()).all()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_equal_links_lose_nothing(job, make_batches, mechanism):
    batches = make_batches(60, samples=SAMPLES, fields=FIELDS, rows=3000, seed=2)
    totals = [
        simulate(Planner(job(mechanism=mechanism, workload_limits=limits), EQUAL, [600] * 4), batches)
        for limits in ((1, SAMPLES), None)
    ]
    assert totals[0].makespan_seconds < 1.02 * totals[1].makespan_seconds


def test_the_first_iteration_follows_the_links(job, make_batches):
    batches = make_batches(1, samples=SAMPLES, fields=FIELDS, rows=3000, seed=1)
    first = Planner(job(mechanism="laia"), UNEQUAL, [600] * 4).plan(batches[0])
    assert min(first.workloads[:2]) > 3 * max(first.workloads[2:])


def test_a_straggler_and_a_faster_link_are_followed(job, make_batches):
    """Worker 0 computes ten times longer from iteration 30 on; from 70 on, its link is much faster than registered."""
    batches = make_batches(110, samples=SAMPLES, fields=FIELDS, rows=3000, seed=3)
    normal, slow = np.full(4, 1e-6), np.array([1e-5, 1e-6, 1e-6, 1e-6])
    decisions, times = drive(
        Planner(job(mechanism="laia"), EQUAL, [600] * 4), batches, lambda t: normal if t < 30 else slow
    )
    assert decisions[29].workloads[0] > 12
    assert decisions[60].workloads[0] < 8
    assert (times[50:].max(axis=1) / times[50:].mean(axis=1)).mean() < 1.3

    planner = Planner(job(mechanism="laia"), UNEQUAL, [600] * 4)
    for batch in batches:  # worker 2's link is in truth as fast as worker 0's
        decision = planner.plan(batch)
        truth = decision.link_seconds / np.array([1, 1, 10, 1]) + 1e-6 * decision.workloads
        planner.observe(Feedback(truth, np.zeros(4)))
    assert decision.workloads[2] > 1.5 * decision.workloads[3]


def small_cache_stream(make_batches):
    """Samples of 6 ids that share most of their rows: 32 of them never need more than 120."""
    return make_batches(60, samples=SAMPLES, fields=FIELDS, rows=150, seed=7)


def test_a_small_cache_does_not_stop_balancing_as_long_as_the_rows_fit(job, make_batches):
    """The cache holds 20 samples of 6 ids that share nothing; in this stream it holds many more."""
    planner = Planner(job(mechanism="laia"), UNEQUAL, [120] * 4)
    decisions, _ = drive(planner, small_cache_stream(make_batches), [1e-7] * 4)
    assert np.mean([decision.workloads[0] for decision in decisions[10:]]) > 24
    assert max(decision.worker_lookups.max() for decision in decisions) <= 120


def test_a_worker_that_its_cache_holds_back_is_told_of(job, make_batches):
    planner = Planner(job(mechanism="laia"), UNEQUAL, [60, 600, 600, 600])
    decisions, _ = drive(planner, make_batches(40, samples=SAMPLES, fields=FIELDS, rows=3000, seed=4), [1e-7] * 4)
    last = decisions[-1]
    assert last.held_back[0] == pytest.approx(last.workloads[0], abs=4)
    assert last.held_back[1:].tolist() == [0, 0, 0]
    assert last.worker_lookups[0] <= 60 < last.worker_lookups[1]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_rows_fit_the_caches_whatever_the_batches_are(job, make_batches, mechanism):
    """Batches whose samples share nearly all rows, then one whose samples share none: equal workloads just fit."""
    alike = make_batches(30, samples=SAMPLES, fields=FIELDS, rows=12, seed=5)
    planner = Planner(job(mechanism=mechanism), UNEQUAL, [SAMPLES // 4 * FIELDS] * 4)
    for batch in alike:
        planner.plan(batch)
    ids = np.arange(SAMPLES * FIELDS, dtype=np.uint64).reshape(SAMPLES, FIELDS) + 10**6
    decision = planner.plan(type(alike[0]).of_fields(ids, alike[0].dense, alike[0].labels))
    assert decision.workloads.tolist() == [16] * 4


def test_a_batch_that_fits_nowhere_is_refused_by_name(job, make_batches):
    planner = Planner(job(mechanism="laia"), UNEQUAL, [50] * 4)
    with pytest.raises(ResourceExhausted, match="caches 50 rows, iteration 0 needs"):
        planner.plan(make_batches(1, samples=SAMPLES, fields=FIELDS, rows=10**6, seed=5)[0])


def test_workers_have_limits_of_their_own(job, make_batches):
    limits = [(0, 20), (0, 64), (9, 64), (0, 64)]
    planner = Planner(job(mechanism="esd"), UNEQUAL, [600] * 4, worker_limits=limits)
    decisions, _ = drive(planner, make_batches(30, samples=SAMPLES, fields=FIELDS, rows=3000, seed=6), [1e-7] * 4)
    workloads = np.array([decision.workloads for decision in decisions])
    assert workloads[:, 0].max() == 20
    assert workloads[:, 2].min() == 9
    assert workloads[:, 3].min() < 9


def test_fixed_workloads_that_a_worker_does_not_take_are_refused(job):
    with pytest.raises(InvalidArgument, match=r"worker 1 would train 16 samples per iteration, and takes 0\.\.10"):
        Planner(job(workload_limits=None), UNEQUAL, [600] * 4, worker_limits=[(0, 64), (0, 10), (0, 64), (0, 64)])
    with pytest.raises(InvalidArgument, match=r"sum to 4\.\.40, and a batch has 64"):
        Planner(job(), UNEQUAL, [600] * 4, worker_limits=[(0, 10)] * 4)


def test_the_same_stream_and_feedback_make_the_same_plans(job, make_batches):
    batches = make_batches(25, samples=SAMPLES, fields=FIELDS, rows=3000, seed=8)
    for mechanism in MECHANISMS:
        runs = [drive(Planner(job(mechanism=mechanism), UNEQUAL, [600] * 4), batches, [1e-6] * 4)[0] for _ in range(2)]
        for one, other in itertools.zip_longest(*runs):
            assert (one.assignment == other.assignment).all()


def test_a_checkpoint_of_an_earlier_version_knows_of_no_worker_that_rested(job, make_batches):
    batches = make_batches(30, samples=SAMPLES, fields=FIELDS, rows=3000, seed=1)
    original = Planner(job(), UNEQUAL, [600] * 4)
    drive(original, batches[:20], [1e-6] * 4)
    _, snapshot = original.checkpoint()
    later = {name for name in snapshot.learned if "/trials/" in name or name.endswith(("/roles", "/rested"))}
    assert len(later) == 9
    earlier = {name: array for name, array in snapshot.learned.items() if name not in later}
    workloads = []
    for learned in (snapshot.learned, earlier):
        planner = Planner(job(), UNEQUAL, [600] * 4, snapshot=replace(snapshot, learned=learned))
        decisions, _ = drive(planner, batches[20:], [1e-6] * 4)
        workloads.append([each.workloads.tolist() for each in decisions])
    assert workloads[0] == workloads[1]


@pytest.mark.parametrize("mechanism", ["random", "esd", "joint"])
def test_whatever_a_report_may_say_every_sample_is_assigned(job, make_batches, mechanism):
    """The longest possible time is the most bytes over the slowest link of a valid report."""
    rng = np.random.default_rng(7)
    planner = Planner(job(mechanism=mechanism, measured_links=True), UNEQUAL, [600] * 4)
    for batch in make_batches(25, samples=SAMPLES, fields=FIELDS, rows=3000, seed=9):
        assert planner.plan(batch).workloads.sum() == SAMPLES
        seconds = rng.choice([0, 1e-300, 1e-6, 0.5, 1e9, 2**49 / 1e-3 + 2e9], 4)
        planner.observe(Feedback(seconds, rng.choice([0, 1e-3, 1.0, 62.5e6, 1e15], 4)))
