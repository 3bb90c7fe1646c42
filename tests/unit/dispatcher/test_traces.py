"""Traces worked by hand: examples that the papers describe in words, and cases of eviction and split rows."""

import dataclasses

import numpy as np
import pytest

from esd.dispatcher.core.mechanisms import Replay
from esd.dispatcher.core.planner import Planner
from esd.dispatcher.simulator.simulate import simulate, trace_batches

FAST, SLOW = 480.0, 48.0  # bytes per second: a row of 8 values with its id and version takes 0.1 s and 1 s under SGD


def trace(*iterations):
    """uint64 [N, F] from the samples of each iteration."""
    return np.concatenate([np.array(samples, np.uint64) for samples in iterations])


def planner_for(make_job, samples, bandwidths, cache_rows, mechanism, assignments=None, policy="emark"):
    """A planner for batches of one sample per worker."""
    job = make_job(
        workers=len(bandwidths),
        fields=samples.shape[1],
        batch_size=len(bandwidths),
        mechanism=mechanism,
        policy=policy,
    )
    replay = None if assignments is None else Replay(np.array(assignments, np.int32), len(bandwidths))
    return Planner(job, bandwidths, cache_rows, mechanism=replay)


def counts(operations):
    return {field.name: getattr(operations, field.name).tolist() for field in dataclasses.fields(operations)}


def per_iteration(planner, samples):
    return [counts(planner.plan(batch).operations) for batch in trace_batches(samples, planner.job.batch_size)]


@pytest.mark.parametrize("policy", ["emark", "lru"])
def test_esd_section_3_2(make_job, policy):
    """Fig. 2: misses of x8..x11 in I2, w3 pushes x9 for w2 in I2, w2's cache evicts x5 in I3."""
    samples = trace(
        [[1, 2, 3], [5, 6, 6], [7, 9, 12]],
        [[1, 2, 10], [6, 9, 11], [7, 8, 12]],
        [[1, 2, 10], [6, 9, 13], [7, 8, 12]],
    )
    in_order = [[0, 1, 2]] * 3
    arguments = (samples, [FAST, FAST, SLOW], [6, 4, 6], "random", in_order, policy)
    assert per_iteration(planner_for(make_job, *arguments), samples) == [
        {"miss_pull": [3, 2, 3], "update_push": [0, 0, 0], "evict_push": [0, 0, 0]},
        {"miss_pull": [1, 2, 1], "update_push": [0, 0, 1], "evict_push": [0, 0, 0]},
        {"miss_pull": [0, 1, 0], "update_push": [0, 0, 0], "evict_push": [0, 1, 0]},
    ]

    totals = simulate(planner_for(make_job, *arguments), trace_batches(samples, 3))
    assert counts(totals.operations) == {"miss_pull": [4, 5, 4], "update_push": [0, 0, 1], "evict_push": [0, 1, 0]}
    assert totals.cost_seconds == pytest.approx(0.1 * 4 + 0.1 * 6 + 1.0 * 5)
    assert totals.makespan_seconds == pytest.approx(3.0 + 2.0 + 0.2)
    assert (totals.lookups, totals.hits) == (26, 13)
    assert totals.hit_ratio == pytest.approx(0.5)
    # Left to push: w1 owns 1, 2, 3, 10; w2 owns 6, 9, 11, 13; w3 owns 7, 8, 12.
    assert totals.flush_push.tolist() == [4, 4, 3]

    computing = simulate(planner_for(make_job, *arguments), trace_batches(samples, 3), sample_seconds=[2.5] * 3)
    assert computing.makespan_seconds == pytest.approx(5.5 + 4.5 + 2.7)
    assert computing.overlapped_seconds == pytest.approx(3.0 + 2.5 + 2.5)


HERALD = trace([[1, 2], [3, 3]], [[3, 3], [1, 2]])


def test_herald_figure_5_without_scheduling(make_job):
    """Samples land where their rows are not: every row is pushed by its owner and pulled by its reader."""
    planner = planner_for(make_job, HERALD, [FAST, FAST], [8, 8], "random", [[0, 1], [0, 1]])
    assert per_iteration(planner, HERALD)[1] == {"miss_pull": [1, 2], "update_push": [2, 1], "evict_push": [0, 0]}


@pytest.mark.parametrize("mechanism", ["laia", "esd"])
def test_herald_figure_5_with_scheduling(make_job, mechanism):
    """Samples land where their rows are: nothing moves."""
    planner = planner_for(make_job, HERALD, [FAST, FAST], [8, 8], mechanism)
    nothing = {"miss_pull": [0, 0], "update_push": [0, 0], "evict_push": [0, 0]}
    assert per_iteration(planner, HERALD)[1] == nothing


X, Y, Z = 10, 20, 30


def test_split_row_is_pushed_by_all_who_trained_it(make_job):
    samples = trace([[X], [X], [Y]], [[Y], [Z], [X]], [[Z], [Z], [X]])
    planner = planner_for(make_job, samples, [FAST] * 3, [3] * 3, "random", [[0, 1, 2]] * 3)
    assert per_iteration(planner, samples) == [
        {"miss_pull": [1, 1, 1], "update_push": [0, 0, 0], "evict_push": [0, 0, 0]},  # X split over w0, w1
        {"miss_pull": [1, 1, 1], "update_push": [1, 1, 1], "evict_push": [0, 0, 0]},  # w0, w1 push X, w2 pushes Y
        {"miss_pull": [1, 0, 0], "update_push": [0, 1, 0], "evict_push": [0, 0, 0]},  # w1 pushes Z, keeps the latest
    ]
    assert [len(plan.rows) for plan in planner.flush()] == [1, 0, 1]  # w0 owns Y, w2 owns X
    assert [len(plan.gradients) for plan in planner.flush()] == [0, 0, 0]


def test_flush_pushes_partial_gradients_once(make_job):
    samples = trace([[X], [X]])
    planner = planner_for(make_job, samples, [FAST] * 2, [1] * 2, "random", [[0, 1]])
    per_iteration(planner, samples)
    plans = planner.flush()
    assert [plan.gradients.contributors.tolist() for plan in plans] == [[0b11], [0b11]]
    assert [plan.gradients.rows.versions.tolist() for plan in plans] == [[1], [1]]


def test_partial_gradient_is_pushed_when_evicted(make_job):
    samples = trace([[X], [X]], [[Y], [Z]], [[X], [Z]])
    planner = planner_for(make_job, samples, [FAST] * 2, [1] * 2, "random", [[0, 1]] * 3)
    assert per_iteration(planner, samples) == [
        {"miss_pull": [1, 1], "update_push": [0, 0], "evict_push": [0, 0]},
        {"miss_pull": [1, 1], "update_push": [0, 0], "evict_push": [1, 1]},  # both halves of X's gradient
        {"miss_pull": [1, 0], "update_push": [0, 0], "evict_push": [1, 0]},  # Y is owned; X is complete at the server
    ]


def test_esd_sends_a_sample_to_the_cheaper_link(make_job):
    """No worker has the rows yet: two samples, one fast place each; the larger sample takes the faster link."""
    samples = trace([[1, 1], [2, 3]])
    planner = planner_for(make_job, samples, [SLOW, FAST], [4, 4], "esd")
    decision = planner.plan(next(trace_batches(samples, 2)))
    assert decision.assignment.tolist() == [0, 1]
    assert decision.expected_cost_seconds == pytest.approx(1.0 + 2 * 0.1)
    assert decision.cost_seconds == pytest.approx(1.0 + 2 * 0.1)
