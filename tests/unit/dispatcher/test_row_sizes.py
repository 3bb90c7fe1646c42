"""Rows of unequal size (ESD §8.2): a planner's decisions and costs when tables differ in dimension or optimizer."""

from dataclasses import replace

import numpy as np
import pytest

from esd.dispatcher.core.cost_model import RowSizes
from esd.dispatcher.core.mechanisms import MECHANISMS
from esd.dispatcher.core.planner import Planner
from esd.dispatcher.simulator.dimensions import with_dimensions
from esd.dispatcher.simulator.simulate import simulate, trace_batches, with_lookahead
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.features import Feature
from esd.services.domain.ids import in_table
from esd.services.domain.mechanisms import EsdOptions
from esd.services.domain.tables import OptimizerKind, OptimizerSpec, TableSpec

BANDWIDTHS = [625e6, 625e6, 62.5e6, 62.5e6]


def table(kind=OptimizerKind.SGD, dimension=8):
    return TableSpec(f"emb-{dimension}", dimension, OptimizerSpec(kind), seed=1, init_scale=0.01)


def tables(dimensions, kind=OptimizerKind.SGD):
    return tuple(table(kind, dimension) for dimension in dimensions)


def features(count, tables=1):
    """Fields that take turns with the tables."""
    return tuple(Feature(str(number), number % tables) for number in range(count))


def with_tables(job, specs):
    """The job with a table for each of its fields."""
    specs = tuple(specs)
    return replace(job, tables=specs, features=features(len(specs), len(specs)))


def in_tables_of_fields(batches):
    """The batches with the ids of every field in a table of its own."""
    for batch in batches:
        fields = np.arange(batch.fields, dtype=np.uint64)
        yield replace(batch, ids=in_table(batch.by_field, fields).reshape(-1))


def test_units_are_the_common_measure_of_the_rows():
    sizes = RowSizes(tables([16, 64, 24]), features(3, tables=3))
    assert (sizes.unit_bytes, sizes.of_tables, sizes.of_sample) == (16, (5, 17, 7), 29)
    assert sizes.cache_room(10) == 50  # a row of 16 values moves as 64 bytes and 16 beside them
    with_state = RowSizes(tables([16, 8], OptimizerKind.ADAM), features(2, tables=2))
    assert (with_state.unit_bytes, with_state.of_tables) == (16, (13, 7))
    assert with_state.gradient_shares == ((64 + 32) / 208, (32 + 32) / 112)
    assert with_state.value_shares == ((64 + 16) / 208, (32 + 16) / 112)


def test_with_one_table_a_row_is_the_unit():
    sizes = RowSizes([table()], features(3))
    assert (sizes.unit_bytes, sizes.of_tables, sizes.of_sample, sizes.cache_room(10)) == (48, (), 3, 10)


@pytest.mark.parametrize("mechanism", ["esd", "joint"])
def test_tables_of_one_dimension_are_as_one(make_job, make_batches, mechanism):
    """Only the slots differ where caches have room for all rows: a slot of one table never gets a row of another."""
    job = make_job(mechanism=mechanism)
    one = Planner(job, BANDWIDTHS, [300] * 4)
    three = Planner(with_tables(job, (replace(job.table, name=name) for name in "abc")), BANDWIDTHS, [300] * 4)
    for batch in in_tables_of_fields(make_batches(15, samples=16, fields=3, rows=80, seed=6)):
        plain, split = one.plan(batch), three.plan(batch)
        assert plain.assignment.tolist() == split.assignment.tolist()
        assert plain.cost_seconds == split.cost_seconds
        assert plain.moved_bytes.total.tolist() == split.moved_bytes.total.tolist()


@pytest.mark.parametrize(
    ("kind", "rows"),
    [(OptimizerKind.SGD, (64, 256)), (OptimizerKind.ROWWISE_ADAGRAD, (68, 260)), (OptimizerKind.ADAM, (192, 768))],
)
def test_every_row_and_gradient_is_charged_by_its_own_bytes(make_job, kind, rows):
    """The rows of the first field have 16 values of 4 bytes; rows of the second have 64."""
    rng = np.random.default_rng(3)
    trace = rng.integers(0, 100, (800, 2)).astype(np.uint64)
    job = with_tables(make_job(mechanism="esd", fields=2, batch_size=40), tables((16, 64), kind))
    planner = Planner(job, BANDWIDTHS, [200] * 4)
    row, gradient = {True: rows[0] + 16, False: rows[1] + 16}, {True: 64 + 32, False: 256 + 32}
    values = {True: 64 + 16, False: 256 + 16}
    for batch in in_tables_of_fields(trace_batches(trace, 40)):
        decision = planner.plan(batch)
        for worker, plan in enumerate(decision.plans):
            stateless = plan.stateless_pulls()
            for kind, moves in (
                ("miss_pull", [(row, plan.pulls.ids[~stateless]), (values, plan.pulls.ids[stateless])]),
                ("update_push", [(row, plan.update_rows.ids), (gradient, plan.update_gradients.rows.ids)]),
                ("evict_push", [(row, plan.evict_rows.ids), (gradient, plan.evict_gradients.rows.ids)]),
            ):
                expected = sum(bytes_of[x < 2**56] for bytes_of, moved in moves for x in moved.tolist())
                assert getattr(decision.moved_bytes, kind)[worker] == expected
        assert decision.link_seconds == pytest.approx(decision.moved_bytes.total / np.array(BANDWIDTHS))
        assert decision.cost_seconds == pytest.approx(decision.link_seconds.sum())


@pytest.mark.parametrize("mechanism", ["esd", "joint"])
def test_knowing_the_sizes_saves_bytes(make_job, mechanism):
    """The same stream and caches, charged by size: decisions that see only rows cost more."""
    rng = np.random.default_rng(5)
    trace = (400 * rng.random((6400, 4)) ** 2).astype(np.uint64)
    job = make_job(mechanism=mechanism, fields=4, batch_size=64)
    small, large = tables((8, 256))
    sized_job = with_tables(job, (small, *(replace(small, name=name) for name in "bc"), large))
    sized = simulate(Planner(sized_job, BANDWIDTHS, [6000] * 4), in_tables_of_fields(trace_batches(trace, 64)))
    blind = Planner(job, BANDWIDTHS, [6000] * 4)
    cost = 0.0
    for batch in in_tables_of_fields(trace_batches(trace, 64)):
        for worker, plan in enumerate(blind.plan(batch).plans):
            moves = [plan.pulls, plan.update_rows, plan.update_gradients.rows]
            ids = np.concatenate([rows.ids for rows in moves])
            cost += float(np.where(ids >= 3 << 56, 1040, 48).sum()) / BANDWIDTHS[worker]
    assert sized.operations.evict_push.sum() == 0  # the caches hold everything, so they are the same
    assert sized.cost_seconds < 0.95 * cost


@pytest.mark.parametrize("mechanism", [name for name in MECHANISMS if name != "brute-force"])
@pytest.mark.parametrize("policy", ["emark", "emark-size"])
def test_every_mechanism_keeps_the_caches_within_their_bytes(make_job, make_batches, make_cluster, mechanism, policy):
    """The independent cluster refuses forbidden plans; here caches have the room of 120 rows of 4 values."""
    job = make_job(
        mechanism=mechanism,
        policy=policy,
        mechanism_options=EsdOptions(eviction_term=True) if mechanism == "esd" else None,
    )
    planner = Planner(with_tables(job, tables((4, 8, 16))), BANDWIDTHS, [120] * 4)
    cluster = make_cluster([120] * 4, several_tables=True)
    stream = in_tables_of_fields(make_batches(12, samples=16, fields=3, rows=300, seed=2))
    for batch, lookahead_batches in with_lookahead(stream, planner.lookahead):
        decision = planner.plan(batch, lookahead_batches)
        cluster.run(batch, decision.assignment, decision.plans)
    cluster.flush(planner.flush())


def test_dimensions_of_fields_are_for_data_without_tables(make_job):
    job, numbers = with_dimensions(make_job(fields=3), [8, 16, 8])
    assert ([table.dimension for table in job.tables], numbers) == ([8, 16], (0, 1, 0))
    assert [feature.table for feature in job.features] == [0, 1, 0]
    with pytest.raises(InvalidArgument, match="--dims is for data without tables"):
        with_dimensions(job, [8, 16, 8])
    with pytest.raises(InvalidArgument, match="258 different dimensions, a job has at most 256"):
        with_dimensions(make_job(fields=257), range(9, 266))
