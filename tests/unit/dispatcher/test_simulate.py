import dataclasses

import numpy as np
import pytest

from esd.dispatcher.core.mechanisms import Replay
from esd.dispatcher.core.planner import Planner
from esd.dispatcher.simulator.simulate import simulate, trace_batches
from esd.services.domain.errors import InvalidArgument

BANDWIDTHS = [625e6, 625e6, 62.5e6, 62.5e6]


@pytest.fixture
def stream(make_batches):
    """19 full batches and a short one."""
    *full, last = make_batches(20, samples=16, fields=3, rows=80, seed=6)
    return [*full, last[:7]]


def test_totals_are_the_sums_of_the_decisions(make_job, stream):
    planner = Planner(make_job(mechanism="esd"), BANDWIDTHS, [30] * 4)
    decisions = [planner.plan(batch) for batch in stream]
    flush = planner.flush()
    totals = simulate(Planner(make_job(mechanism="esd"), BANDWIDTHS, [30] * 4), iter(stream))
    assert (totals.iterations, totals.samples) == (20, 19 * 16 + 7)
    for kind in ("miss_pull", "update_push", "evict_push"):
        assert (getattr(totals.operations, kind) == sum(getattr(d.operations, kind) for d in decisions)).all()
    for name in ("cost_seconds", "makespan_seconds", "expected_cost_seconds", "lookups", "hits"):
        assert getattr(totals, name) == pytest.approx(sum(getattr(d, name) for d in decisions)), name
    plans = [[len(message) for message in decision.messages] for decision in decisions]
    assert totals.plan_bytes == sum(map(sum, plans))
    assert totals.plan_seconds == pytest.approx((np.array(plans) / BANDWIDTHS).sum())
    assert totals.flush_push.tolist() == [len(plan.rows) + len(plan.gradients) for plan in flush]
    assert totals.hit_ratio == totals.hits / totals.lookups
    assert 0 < totals.decision_median_seconds <= totals.decision_p99_seconds


def test_replaying_a_recorded_run_costs_the_same(make_job, stream):
    planner = Planner(make_job(mechanism="laia"), BANDWIDTHS, [30] * 4)
    assignments = np.zeros((len(stream), 16), np.int32)
    for row, batch in zip(assignments, stream, strict=True):
        row[: len(batch)] = planner.plan(batch).assignment
    totals = [
        simulate(Planner(make_job(mechanism="laia"), BANDWIDTHS, [30] * 4, mechanism=mechanism), stream)
        for mechanism in (None, Replay(assignments, 4))
    ]
    laia, replayed = (
        {name: value for name, value in dataclasses.asdict(t).items() if not name.startswith("decision")}
        for t in totals
    )
    assert repr(laia) == repr(replayed)


def test_scheduling_beats_random_dispatch(make_job, make_batches):
    """Links differ tenfold: random costs most, and exact ESD is no worse than LAIA."""
    stream = make_batches(200, samples=64, fields=6, rows=3000, seed=1)
    cost = {
        mechanism: simulate(
            Planner(make_job(mechanism=mechanism, batch_size=64, fields=6), BANDWIDTHS, [400] * 4), stream
        ).cost_seconds
        for mechanism in ("random", "laia", "esd")
    }
    assert cost["esd"] <= cost["laia"] < cost["random"]


def test_an_empty_stream_costs_nothing(make_job):
    totals = simulate(Planner(make_job(), BANDWIDTHS, [30] * 4), [])
    assert (totals.iterations, totals.samples, totals.cost_seconds, totals.hit_ratio) == (0, 0, 0, 0)
    assert (totals.decision_median_seconds, totals.decision_p99_seconds) == (0, 0)


def test_a_trace_is_cut_in_order_and_keeps_its_last_samples():
    trace = np.arange(22, dtype=np.uint64).reshape(11, 2)
    batches = list(trace_batches(trace, 4))
    assert [len(batch) for batch in batches] == [4, 4, 3]
    assert (np.concatenate([batch.by_field for batch in batches]) == trace).all()
    assert batches[2].dense.shape == (3, 0)


@pytest.mark.parametrize("trace", [np.zeros(4, np.uint64), np.zeros((4, 2), np.int64)])
def test_a_trace_of_another_kind_is_refused(trace):
    with pytest.raises(InvalidArgument, match="uint64"):
        next(trace_batches(trace, 2))
