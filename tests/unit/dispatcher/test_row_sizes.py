"""Rows of unequal size (ESD §8.2): what a planner decides and charges when every field has its own dimension."""

from dataclasses import replace

import numpy as np
import pytest

from dispatcher.core.cost_model import RowSizes
from dispatcher.core.mechanisms import MECHANISMS
from dispatcher.core.planner import Planner
from dispatcher.simulator.simulate import simulate, trace_batches, with_lookahead
from services.domain.errors import InvalidArgument
from services.domain.tables import OptimizerKind, OptimizerSpec, TableSpec

BANDWIDTHS = [625e6, 625e6, 62.5e6, 62.5e6]


def table(kind=OptimizerKind.SGD):
    return TableSpec("emb", 8, OptimizerSpec(kind), seed=1, init_scale=0.01)


def test_units_are_the_common_measure_of_the_rows():
    sizes = RowSizes(table(), 3, [16, 64, 24])
    assert (sizes.unit_bytes, sizes.of_fields, sizes.of_sample) == (16, (5, 17, 7), 29)
    assert sizes.cache_room(10, table()) == 30  # a row of 8 values moves as 32 bytes and 16 beside them
    with_state = RowSizes(table(OptimizerKind.ADAM), 2, [16, 8])
    assert (with_state.unit_bytes, with_state.of_fields) == (16, (13, 7))
    assert with_state.gradient_shares == ((64 + 32) / 208, (32 + 32) / 112)


def test_without_dimensions_a_row_is_the_unit():
    sizes = RowSizes(table(), 3)
    assert (sizes.unit_bytes, sizes.of_fields, sizes.of_sample, sizes.cache_room(10, table())) == (48, (), 3, 10)


@pytest.mark.parametrize(("dimensions", "message"), [([8, 8], "2 row dimensions given for 3"), ([8, 0, 8], "is 0")])
def test_wrong_dimensions_are_refused(dimensions, message):
    with pytest.raises(InvalidArgument, match=message):
        RowSizes(table(), 3, dimensions)


@pytest.mark.parametrize("mechanism", ["esd", "joint"])
def test_equal_dimensions_change_nothing(make_job, make_batches, mechanism):
    stream = make_batches(15, samples=16, fields=3, rows=80, seed=6)
    job = make_job(mechanism=mechanism)
    planners = [Planner(job, BANDWIDTHS, [30] * 4, field_dimensions=given) for given in ((), (8, 8, 8))]
    for batch in stream:
        plain, sized = (planner.plan(batch) for planner in planners)
        assert plain.assignment.tolist() == sized.assignment.tolist()
        assert plain.cost_seconds == sized.cost_seconds
        assert plain.moved_bytes.total.tolist() == sized.moved_bytes.total.tolist()
        assert (plain.moved_bytes.miss_pull == 48 * plain.operations.miss_pull).all()


@pytest.mark.parametrize(
    ("kind", "rows"),
    [(OptimizerKind.SGD, (64, 256)), (OptimizerKind.ROWWISE_ADAGRAD, (68, 260)), (OptimizerKind.ADAM, (192, 768))],
)
def test_every_row_and_gradient_is_charged_by_its_own_bytes(make_job, kind, rows):
    """Ids below 1000 are of the first field, whose rows have 16 values of 4 bytes; the others have 64."""
    rng = np.random.default_rng(3)
    trace = np.stack([rng.integers(0, 100, 800), rng.integers(1000, 1100, 800)], axis=1).astype(np.uint64)
    job = replace(make_job(mechanism="esd", fields=2, batch_size=40), tables=(table(kind),))
    planner = Planner(job, BANDWIDTHS, [200] * 4, field_dimensions=(16, 64))
    row, gradient = {True: rows[0] + 16, False: rows[1] + 16}, {True: 64 + 32, False: 256 + 32}
    for batch in trace_batches(trace, 40):
        decision = planner.plan(batch)
        for worker, plan in enumerate(decision.plans):
            for kind, moves in (
                ("miss_pull", [(row, plan.pulls)]),
                ("update_push", [(row, plan.update_rows), (gradient, plan.update_gradients.rows)]),
                ("evict_push", [(row, plan.evict_rows), (gradient, plan.evict_gradients.rows)]),
            ):
                expected = sum(bytes_of[x < 1000] for bytes_of, moved in moves for x in moved.ids.tolist())
                assert getattr(decision.moved_bytes, kind)[worker] == expected
        assert decision.link_seconds == pytest.approx(decision.moved_bytes.total / np.array(BANDWIDTHS))
        assert decision.cost_seconds == pytest.approx(decision.link_seconds.sum())


@pytest.mark.parametrize("mechanism", ["esd", "joint"])
def test_knowing_the_sizes_saves_bytes(make_job, mechanism):
    """The same stream and caches, charged by size: decisions that see only rows cost more."""
    rng = np.random.default_rng(5)
    skewed = (400 * rng.random((6400, 4)) ** 2).astype(np.uint64)
    trace = skewed + np.arange(4, dtype=np.uint64) * np.uint64(1000)
    dimensions = (8, 8, 8, 256)
    job = make_job(mechanism=mechanism, fields=4, batch_size=64)
    decides = Planner(job, BANDWIDTHS, [6000] * 4, field_dimensions=dimensions)
    sized = simulate(decides, trace_batches(trace, 64))
    blind = Planner(job, BANDWIDTHS, [6000] * 4)
    cost = 0.0
    for batch in trace_batches(trace, 64):
        for worker, plan in enumerate(blind.plan(batch).plans):
            moves = [plan.pulls, plan.update_rows, plan.update_gradients.rows]
            ids = np.concatenate([rows.ids for rows in moves])
            cost += float(np.where(ids >= 3000, 1040, 48).sum()) / BANDWIDTHS[worker]
    assert sized.operations.evict_push.sum() == 0  # the caches hold everything, so they are the same
    assert sized.cost_seconds < 0.95 * cost


@pytest.mark.parametrize("mechanism", [name for name in MECHANISMS if name != "brute-force"])
@pytest.mark.parametrize("policy", ["emark", "emark-size"])
def test_every_mechanism_keeps_the_caches_within_their_bytes(make_job, make_batches, make_cluster, mechanism, policy):
    """The independent cluster refuses what must not happen; here caches of 60 rows hold up to 120 of 4 values."""
    job = make_job(mechanism=mechanism, policy=policy, eviction_term=mechanism == "esd")
    planner = Planner(job, BANDWIDTHS, [60] * 4, field_dimensions=(4, 8, 16))
    cluster = make_cluster([120] * 4)
    stream = make_batches(12, samples=16, fields=3, rows=300, seed=2)
    for batch, lookahead_batches in with_lookahead(stream, planner.lookahead):
        decision = planner.plan(batch, lookahead_batches)
        cluster.run(batch, decision.assignment, decision.plans)
    cluster.flush(planner.flush())
