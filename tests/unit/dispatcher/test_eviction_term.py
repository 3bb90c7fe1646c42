from dataclasses import replace

import numpy as np
import pytest

from esd.dispatcher.core.cost_model import EvictionRisk, RowSizes
from esd.dispatcher.core.mechanisms import DispatchInput
from esd.dispatcher.core.mechanisms.esd import Esd
from esd.dispatcher.core.planner import Planner
from esd.dispatcher.simulator.simulate import simulate
from esd.native.engine import Engine
from esd.services.domain.features import numbered_ids
from esd.services.domain.mechanisms import EsdOptions
from esd.services.domain.tables import OptimizerKind, OptimizerSpec, TableSpec
from tests.support.batches import ids_only

LINKS = np.array([1, 1, 10], np.int32)
SIZES = RowSizes([TableSpec("t", 8, OptimizerSpec(), seed=0, init_scale=0.1)], numbered_ids(1))


def test_risk_is_the_share_of_evictions_that_push(make_job, make_batches):
    """A partial gradient counts by its size relative to a row: 64 bytes of 112."""
    adam = TableSpec("t", 8, OptimizerSpec(OptimizerKind.ADAM), seed=0, init_scale=0.1)
    job = replace(make_job(mechanism="esd"), tables=(adam,))
    planner, sizes = Planner(job, [1e6] * 4, [30] * 4), RowSizes(job.tables, job.features)
    table = job.table
    gradient = table.gradient_transfer_bytes / table.row_transfer_bytes
    risk, shares, gradients = EvictionRisk(4), np.zeros(4), 0
    assert not risk.costs(np.full(4, 10, np.int32)).any()
    for batch in make_batches(60, samples=16, fields=3, rows=300, seed=3):
        decision = planner.plan(batch)
        risk.update(decision.columns, sizes)
        for j, plan in enumerate(decision.plans):
            evicted = len(plan.evict_rows) + len(plan.evict_gradients) + len(plan.drops)
            gradients += len(plan.evict_gradients)
            if evicted:
                share = (len(plan.evict_rows) + gradient * len(plan.evict_gradients)) / evicted
                shares[j] = 0.9 * shares[j] + 0.1 * share
    assert gradient < 0.6
    assert gradients > 10
    assert (shares > 0.05).all()
    assert risk.costs(np.full(4, 10, np.int32)) == pytest.approx(10 * shares)


def test_a_sample_stays_away_from_a_cache_that_it_would_overflow(make_job):
    """Rows 1 and 2 have no latest copy; worker 1 still has outdated ones, and worker 0 would have to evict."""
    engine = Engine([4, 4, 4], "lru")
    for ids, workers in (([[1, 2], [1, 2]], [1, 2]), ([[1, 2], [8, 9]], [2, 0])):
        engine.prepare(np.array(ids, np.uint64))
        engine.commit(np.array(workers, np.int32))
    ids = np.array([[1, 2], [20, 21]], np.uint64)
    engine.prepare(ids)
    assert engine.room_needed().tolist() == [[2, 0, 0], [2, 2, 2]]

    def assign(evictions):
        problem = DispatchInput(
            engine, ids_only(ids), np.array([1, 1, 0], np.int32), 0, LINKS, SIZES, eviction_costs=evictions
        )
        return Esd(make_job(mechanism="esd")).decide(problem)

    assert assign(np.array([0.0, 0.3, 0.0])).workers.tolist() == [1, 0]
    assert assign(np.array([0.3, 0.3, 0.0])).workers.tolist() == [1, 0]
    plain, priced = assign(None), assign(np.array([0.5, 0.5, 0.0]))
    assert priced.expected_cost == plain.expected_cost + 2 * 0.5


def test_very_unequal_links_leave_no_room_for_finer_costs(make_job):
    """Costs near the solvers' limit are taken as they are, and nothing overflows."""
    engine = Engine([4, 4], "lru")
    ids = np.array([[1], [2]], np.uint64)
    engine.prepare(ids)
    links = np.array([1, 2**28], np.int32)
    problem = DispatchInput(
        engine, ids_only(ids), np.array([1, 1], np.int32), 0, links, SIZES, eviction_costs=links * 1.0
    )
    assert Esd(make_job(mechanism="esd")).decide(problem).expected_cost == 2 * (1 + 2**28)


def test_evictions_that_count_cost_less_where_caches_are_small(make_job, make_batches):
    stream = make_batches(300, samples=64, fields=6, rows=3000, seed=1)
    costs = {
        term: simulate(
            Planner(
                make_job(mechanism="esd", batch_size=64, fields=6, mechanism_options=EsdOptions(eviction_term=term)),
                [625e6, 625e6, 62.5e6, 62.5e6],
                [120] * 4,
            ),
            stream,
        ).cost_seconds
        for term in (False, True)
    }
    assert costs[True] < costs[False]
