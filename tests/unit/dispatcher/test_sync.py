"""Pushing all that is trained, as the engine plans it, against HET's model with bound 0 and the papers' example."""

import numpy as np
import pytest

from esd.dispatcher.core.feedback import Feedback
from esd.dispatcher.core.mechanisms import Replay
from esd.dispatcher.core.planner import Planner
from esd.dispatcher.service.state import job_metrics
from esd.dispatcher.simulator.alternatives import Cluster, get_alternative
from esd.dispatcher.simulator.alternatives.alternative import Trained
from esd.dispatcher.simulator.simulate import trace_batches
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.mechanisms import JointOptions
from esd.services.domain.sync import FlushedAhead, Full, OnDemand, Proactive, Replicated, Uncached, WriteThrough
from esd.services.domain.worker_set import WorkerSet
from esd.services.runtime import metrics
from tests.support.batches import ids_only

BANDWIDTHS = [4e6, 2e6, 1e6]


def pushed(flushes):
    return np.array([len(flush.rows) + len(flush.gradients) for flush in flushes])


@pytest.mark.parametrize("sync", [Full(), WriteThrough()])
def test_every_row_is_pushed_in_the_iteration_after_its_training(make_job, make_batches, sync):
    """The same pulls as HET's with bound 0, whose caches are counted by other code; and its pushes, one later."""
    capacities = [60, 60, 60]  # they hold everything, since the two break ties between victims differently
    job = make_job(workers=3, batch_size=12, policy="lru", mechanism="random", sync=sync)
    planner = Planner(job, BANDWIDTHS, capacities)
    het = get_alternative("het:0", Cluster(capacities, np.ones(3), np.zeros(3), np.empty(0, np.uint64)))
    owed = np.zeros(3, np.int64)
    for batch in make_batches(40, samples=12, fields=3, rows=60, seed=3):
        decision = planner.plan(batch)
        counted = het.step(Trained(batch, decision)).operations
        assert decision.operations.miss_pull.tolist() == counted.miss_pull.tolist()
        assert decision.operations.update_push.tolist() == owed.tolist()
        assert not decision.operations.evict_push.any()
        owed = counted.update_push
        if decision.iteration in (10, 11, 25):
            flushes, _ = planner.checkpoint()
            assert pushed(flushes).tolist() == owed.tolist()
            owed = np.zeros(3, np.int64)
    assert pushed(planner.flush()).tolist() == owed.tolist()
    assert not pushed(planner.flush()).any()


def test_without_caches_every_row_is_pulled_and_pushed(make_job, make_batches):
    """The same rows as the simulator counts by other code, pushes an iteration later, and no lookup is a hit."""
    capacities = [40, 36, 38]
    planner = Planner(make_job(workers=3, batch_size=12, mechanism="random", sync=Uncached()), BANDWIDTHS, capacities)
    no_cache = get_alternative("no-cache", Cluster(capacities, np.ones(3), np.zeros(3), np.empty(0, np.uint64)))
    owed = np.zeros(3, np.int64)
    for batch in make_batches(60, samples=12, fields=3, rows=60, seed=3):
        decision = planner.plan(batch)
        counted = no_cache.step(Trained(batch, decision)).operations
        assert decision.operations.miss_pull.tolist() == counted.miss_pull.tolist()
        assert decision.operations.update_push.tolist() == owed.tolist()
        assert not decision.operations.evict_push.any()
        assert decision.hits == 0
        owed = counted.update_push
    assert pushed(planner.flush()).tolist() == owed.tolist()


def test_a_cache_that_overflows_evicts_without_a_push(make_job, make_batches):
    planner = Planner(make_job(workers=3, batch_size=12, sync=Full()), BANDWIDTHS, [30, 25, 20])
    moved, trained = np.zeros(3, np.int64), np.zeros(3, np.int64)
    dropped = 0
    for batch in make_batches(40, samples=12, fields=3, rows=200, seed=3):
        decision = planner.plan(batch)
        assert not decision.operations.evict_push.any()
        moved += decision.operations.update_push
        trained += decision.worker_lookups
        dropped += sum(len(plan.drops) for plan in decision.plans)
    assert dropped > 100
    assert (moved + pushed(planner.flush())).tolist() == trained.tolist()


@pytest.mark.parametrize(("second", "pulls", "pushes"), [([0, 1], 3, 3), ([1, 0], 0, 3)])
def test_vanilla_pushes_what_scheduling_need_not_even_pull(make_job, second, pulls, pushes):
    """As in Herald Fig. 5: the samples of iteration 0 come again in the other order, and go astray or home."""
    trace = np.array([[1, 2], [3, 3], [3, 3], [1, 2]], np.uint64)
    job = make_job(workers=2, batch_size=2, fields=2, policy="lru", sync=Full())
    planner = Planner(job, [1e6, 1e6], [3, 3], mechanism=Replay(np.array([[0, 1], second], np.int32), 2))
    for batch in trace_batches(trace, 2):
        decision = planner.plan(batch)
    assert (decision.operations.miss_pull.sum(), pushed(planner.flush()).sum()) == (pulls, pushes)


def test_a_shadow_pushes_as_the_job_does(make_job):
    job = make_job(sync=Full(), mechanism="joint", mechanism_options=JointOptions(3))
    shadow = job.under("laia")
    assert (shadow.mechanism, shadow.sync, shadow.mechanism_options) == ("laia", Full(), None)


def late_pushes(decision):
    """How many update pushes wait for the end of the iteration before."""
    pushes = [each for plan in decision.plans for each in (plan.update_rows, plan.update_gradients.rows)]
    return sum(len(each) - each.early for each in pushes)


def test_idle_links_push_what_nobody_needs_yet(make_job, make_batches):
    """Pulls are the same as on demand, and no push comes later; only the rows just trained wait for their iteration."""
    batches = make_batches(40, samples=12, fields=3, rows=60, seed=3)
    planners = [
        Planner(make_job(workers=3, batch_size=12, mechanism="random", sync=sync), BANDWIDTHS, [60] * 3)
        for sync in (OnDemand(), Proactive())
    ]
    ahead, later_on_demand, later_ahead = 0, 0, 0
    for t, batch in enumerate(batches):
        for planner in planners:
            if t:
                planner.observe(Feedback(np.full(3, 0.05), np.zeros(3)))  # links are idle most of the time
        on_demand, proactive = (planner.plan(batch, batches[t + 1 : t + 11]) for planner in planners)
        assert (on_demand.assignment == proactive.assignment).all()
        assert proactive.operations.miss_pull.tolist() == on_demand.operations.miss_pull.tolist()
        assert late_pushes(proactive) == late_pushes(on_demand)
        if t < 2:
            assert not proactive.columns.figures.any()  # nothing is known, or everything was just trained
        needed = set(batch.ids.ravel().tolist())
        for plan, count in zip(proactive.plans, proactive.columns.figures, strict=True):
            rows = [*plan.update_rows.ids.tolist(), *plan.update_gradients.rows.ids.tolist()]
            assert len(set(rows) - needed) == count
        ahead += proactive.columns.figures.sum()
        later_on_demand += pushed_in(on_demand) - late_pushes(on_demand)
        later_ahead += pushed_in(proactive) - late_pushes(proactive) - proactive.columns.figures.sum()
    assert ahead > 300
    assert later_ahead < 0.5 * later_on_demand  # the rest was trained in the last iteration but one
    assert pushed(planners[1].flush()).sum() < pushed(planners[0].flush()).sum()


def pushed_in(decision):
    return int(decision.operations.update_push.sum())


@pytest.mark.parametrize(("read_at", "known"), [(12, True), (13, False)])
def test_the_reads_of_the_next_ten_iterations_are_known(make_job, read_at, known):
    """FRUGAL's L is 10: before iteration 2 a link with time for one row moves the row that iteration 12 reads."""
    flushed = []
    for read in (1, 2):
        job = make_job(workers=1, batch_size=1, fields=2, mechanism="random", sync=Proactive())
        planner = Planner(job, [1e6], [60])
        trained = [(1, 2), *((100 + t, 200 + t) for t in range(1, 20))]
        trained[read_at] = (read, 500)
        batches = [ids_only(np.array([ids], np.uint64)) for ids in trained]
        for t in range(3):
            decision = planner.plan(batches[t], batches[t + 1 : t + 1 + planner.lookahead])
            idle = 1.5 * job.table.row_transfer_bytes
            planner.observe(Feedback((decision.moved_bytes.total + idle) / 1e6, np.zeros(1)))
        flushed.append(decision.plans[0].update_rows.ids.tolist())
        assert decision.sync_figures == FlushedAhead(1)
    assert flushed == [[1], [2]] if known else flushed[0] == flushed[1]


def test_a_link_that_is_never_idle_pushes_nothing_ahead(make_job, make_batches):
    """Worker 2 has the slowest link, which is all that iterations wait for."""
    planner = Planner(make_job(workers=3, batch_size=12, sync=Proactive()), [4e6, 4e6, 1e4], [60] * 3)
    ahead = np.zeros(3, np.int64)
    batches = make_batches(40, samples=12, fields=3, rows=60, seed=3)
    for t, batch in enumerate(batches):
        decision = planner.plan(batch, batches[t + 1 : t + 11])
        planner.observe(Feedback(decision.link_seconds, np.zeros(3)))
        ahead += decision.columns.figures
    assert ahead[:2].min() > 50
    assert ahead[2] < 0.2 * ahead[:2].min()


def replicating(make_job, **changes):
    options = {"workers": 3, "batch_size": 12, "sync": Replicated(10), "mechanism": "random"}
    return make_job(**options | changes)


def test_a_replicated_row_moves_when_it_joins_and_when_it_leaves_and_never_in_between(make_job, make_batches):
    """All plans train the same rows, a single one as their owner; every worker has the latest of each."""
    planner = Planner(replicating(make_job), BANDWIDTHS, [70] * 3)
    members, pushed_then, moved_within = set(), 0, 0
    for batch in make_batches(140, samples=12, fields=3, rows=90, seed=3):
        decision = planner.plan(batch)
        ids = [plan.unique_ids[plan.reduced] for plan in decision.plans]
        assert [each.tolist() for each in ids] == [ids[0].tolist()] * 3
        owners = [plan.unique_contributors[plan.reduced] for plan in decision.plans]
        assert [each.tolist() for each in owners] == [owners[0].tolist()] * 3
        assert np.isin(owners[0], [1, 2, 4]).all()
        trained = set(ids[0].tolist())
        pushed = {x for plan in decision.plans for x in plan.update_rows.ids.tolist()}
        pushed_then += len(members & pushed)
        members -= pushed  # they have left
        moved = {x for plan in decision.plans for part in moves(plan) for x in part.ids.tolist()}
        moved_within += len(members & moved)
        members |= trained
        assert len(members) <= 10
        floats = len(trained) * planner.job.table.dimension
        assert decision.reduced_bytes.tolist() == [2 * 4 * floats * 2 // 3] * 3
        assert decision.worker_lookups.tolist() == [len(np.unique(plan.inverse)) for plan in decision.plans]
        assert (decision.worker_hits <= decision.worker_lookups).all()
    assert pushed_then > 0
    assert moved_within == 0


def moves(plan):
    """The columns of a plan that move or drop rows."""
    pushes = (plan.update_rows, plan.update_gradients.rows, plan.evict_rows, plan.evict_gradients.rows)
    return (*pushes, plan.drops, plan.pulls)


def test_a_flush_pushes_each_replicated_row_once_and_only_what_was_trained_since(make_job, make_batches):
    planner = Planner(replicating(make_job), BANDWIDTHS, [70] * 3)
    batches = list(make_batches(80, samples=12, fields=3, rows=90, seed=3))
    for batch in batches[:-1]:
        replicated = planner.plan(batch).columns.figures.sum()
    assert replicated > 3
    flushed = [x for plan in planner.flush() for x in plan.rows.ids.tolist()]
    assert len(flushed) == len(set(flushed))
    assert not pushed(planner.flush()).any()
    plans = planner.plan(batches[-1]).plans
    trained = set(plans[0].unique_ids[plans[0].reduced].tolist())
    again = {x for plan in planner.flush() for x in plan.rows.ids.tolist()}
    assert trained <= again


def test_the_rows_that_are_replicated_follow_from_the_stream_alone(make_job, make_batches):
    """Not from the mechanism, the links or the number of workers, as far as reads suffice."""
    trained = []
    for mechanism, workers in (("random", 3), ("laia", 3), ("esd", 2)):
        job = replicating(make_job, mechanism=mechanism, workers=workers)
        planner = Planner(job, BANDWIDTHS[:workers], [90] * workers)
        plans = [planner.plan(batch).plans[0] for batch in make_batches(90, samples=12, fields=3, rows=90, seed=3)]
        trained.append([plan.unique_ids[plan.reduced].tolist() for plan in plans])
    assert trained[0] == trained[1] == trained[2]
    assert any(trained[0])


def test_only_members_replicate(make_job, make_batches):
    job = replicating(make_job, workloads=(6, 0, 6))
    planner = Planner(job, BANDWIDTHS, [70] * 3, members=WorkerSet.of([0, 2]))
    for batch in make_batches(80, samples=12, fields=3, rows=90, seed=3):
        decision = planner.plan(batch)
        assert len(decision.plans[1].unique_ids) == 0
        assert decision.reduced_bytes[1] == 0
    assert decision.reduced_bytes[0] == decision.reduced_bytes[2] > 0
    assert pushed(planner.flush())[1] == 0


def test_more_replicated_rows_than_a_cache_holds_are_refused_by_name(make_job):
    with pytest.raises(InvalidArgument, match=r"--sync replicated:10\), and the smallest cache holds 10"):
        Planner(replicating(make_job), BANDWIDTHS, [70, 10, 70])
    with pytest.raises(InvalidArgument, match="replicated rows are 0, there must be at least 1"):
        Replicated(0)


def test_the_metric_of_cache_lookups_means_what_the_hit_ratio_does(make_job, make_batches):
    """Replicated rows that a worker trains for others only are in neither."""
    planner = Planner(replicating(make_job), BANDWIDTHS, [70] * 3)

    def counted() -> np.ndarray:
        labels = [{"result": result, "table": planner.job.table.name} for result in ("hit", "miss")]
        return np.array([metrics.REGISTRY.get_sample_value("esd_cache_lookups_total", each) or 0 for each in labels])

    before, hits, misses, idle = counted(), 0, 0, 0
    for batch in make_batches(70, samples=12, fields=3, rows=90, seed=3):
        decision = planner.plan(batch)
        job_metrics.planned(planner.job, decision, planner.rows, late=False)
        hits, misses = hits + decision.hits, misses + decision.lookups - decision.hits
        idle += sum(len(plan.unique_ids) for plan in decision.plans) - decision.lookups
    assert idle > 100
    assert (counted() - before).tolist() == [hits, misses]
