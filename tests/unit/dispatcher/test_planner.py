import dataclasses

import numpy as np
import pytest

from esd.dispatcher.core.mechanisms import MECHANISMS
from esd.dispatcher.core.planner import Planner
from esd.dispatcher.simulator.simulate import with_lookahead
from esd.services.domain.errors import InvalidArgument, ResourceExhausted
from esd.services.domain.jobs import RowLimitPolicy
from esd.services.domain.mechanisms import EsdOptions, JointOptions
from esd.services.domain.workloads import scale_workloads

SCALABLE = sorted(set(MECHANISMS) - {"brute-force"})
BANDWIDTHS = [625e6, 625e6, 62.5e6, 62.5e6]


def plan_bytes(value):
    """Every byte of a decision's plans, in field order."""
    if dataclasses.is_dataclass(value):
        return b"".join(plan_bytes(getattr(value, field.name)) for field in dataclasses.fields(value))
    if isinstance(value, tuple):
        return b"".join(plan_bytes(item) for item in value)
    if isinstance(value, np.ndarray):
        return value.dtype.str.encode() + str(value.shape).encode() + value.tobytes()
    return repr(value).encode()


def run(planner, cluster, batches):
    """Plans and executes a stream; the cluster asserts the rules of every iteration."""
    for batch in batches:
        decision = planner.plan(batch)
        assert decision.iteration == cluster.iteration
        counts = np.bincount(decision.assignment, minlength=planner.job.workers)
        assert tuple(counts) == scale_workloads(planner.job.workloads, len(batch))
        demanded = cluster.run(batch, decision.assignment, decision.plans)
        for field in dataclasses.fields(demanded):
            assert (getattr(decision.operations, field.name) == getattr(demanded, field.name)).all(), field.name
        table = planner.job.table
        rows = [len(p.pulls) + len(p.update_rows) + len(p.evict_rows) for p in decision.plans]
        gradients = [len(p.update_gradients) + len(p.evict_gradients) for p in decision.plans]
        moved = np.array(rows) * table.row_transfer_bytes + np.array(gradients) * table.gradient_transfer_bytes
        link_seconds = moved / planner.bandwidths
        assert decision.cost_seconds == pytest.approx(link_seconds.sum())
        assert decision.makespan_seconds == pytest.approx(link_seconds.max())
        assert decision.lookups - decision.hits == demanded.miss_pull.sum()
    cluster.flush(planner.flush())


@pytest.mark.parametrize("policy", ["emark", "lru", "lfu"])
@pytest.mark.parametrize("mechanism", SCALABLE)
@pytest.mark.parametrize(
    ("workers", "workloads", "cache_rows"),
    [
        (1, (16,), [40]),
        (2, (8, 8), [24, 24]),
        (4, (4, 4, 4, 4), [200, 200, 200, 200]),
        (4, (4, 4, 4, 4), [12, 13, 14, 15]),
        (4, (9, 6, 1, 0), [27, 20, 3, 1]),
    ],
)
def test_plans_train_the_model_of_a_single_process(
    make_job, make_batches, make_cluster, mechanism, policy, workers, workloads, cache_rows
):
    job = make_job(workers=workers, workloads=workloads, mechanism=mechanism, policy=policy)
    planner = Planner(job, BANDWIDTHS[:workers], cache_rows)
    batches = make_batches(60, samples=16, fields=3, rows=80, seed=3)
    run(planner, make_cluster(cache_rows), [*batches, batches[0][:5]])


@pytest.mark.parametrize("mechanism", SCALABLE)
def test_lists_are_trained_as_in_a_single_process(make_job, make_batches, make_cluster, mechanism):
    job = make_job(mechanism=mechanism, longest=3, mechanism_options=JointOptions(2) if mechanism == "joint" else None)
    cache_rows = [34, 40, 36, 100]
    planner = Planner(job, BANDWIDTHS, cache_rows)
    batches = make_batches(40, samples=16, fields=3, rows=80, seed=3, longest=3)
    cluster = make_cluster(cache_rows)
    for batch, later in with_lookahead([*batches, batches[0][:5]], planner.lookahead):
        decision = planner.plan(batch, later)
        demanded = cluster.run(batch, decision.assignment, decision.plans)
        assert (decision.operations.total == demanded.total).all()
    cluster.flush(planner.flush())


@pytest.mark.parametrize("mechanism", ["esd", "joint", "laia", "hash"])
@pytest.mark.parametrize("workers", [64, 80, 128])
def test_many_workers_train_what_one_would(make_job, make_batches, make_cluster, workers, mechanism):
    job = make_job(workers=workers, batch_size=2 * workers, mechanism=mechanism)
    planner = Planner(job, [1e6] * workers, [7] * workers)
    run(planner, make_cluster([7] * workers), make_batches(12, samples=2 * workers, fields=3, rows=300, seed=5))


@pytest.mark.parametrize("alpha", [0.0, 0.25, 1.0])
def test_esd_meets_unequal_workloads_at_any_alpha(make_job, make_batches, make_cluster, alpha):
    job = make_job(mechanism="esd", mechanism_options=EsdOptions(alpha), workloads=(7, 5, 4, 0))
    planner = Planner(job, BANDWIDTHS, [21, 15, 12, 1])
    run(planner, make_cluster([21, 15, 12, 1]), make_batches(40, samples=16, fields=3, rows=60, seed=11))


@pytest.mark.parametrize("mechanism", SCALABLE)
def test_same_seed_and_stream_give_identical_plans(make_job, make_batches, mechanism):
    def plans():
        planner = Planner(make_job(mechanism=mechanism), BANDWIDTHS, [20] * 4)
        batches = make_batches(30, samples=16, fields=3, rows=80, seed=2)
        return b"".join(plan_bytes(planner.plan(batch).plans) for batch in batches) + plan_bytes(planner.flush())

    assert plans() == plans()


@pytest.mark.parametrize("mechanism", ["random", "laia"])
def test_the_seed_changes_what_is_drawn(make_job, make_batches, mechanism):
    batch = make_batches(1, samples=16, fields=3, rows=80, seed=2)[0]
    first, second = (
        Planner(make_job(mechanism=mechanism, seed=seed), BANDWIDTHS, [50] * 4).plan(batch) for seed in (1, 2)
    )
    assert (first.assignment != second.assignment).any()


def test_random_dispatch_needs_no_history(make_job, make_batches):
    batches = make_batches(3, samples=16, fields=3, rows=80, seed=2)
    one, other = (Planner(make_job(mechanism="random"), BANDWIDTHS, [50] * 4) for _ in range(2))
    for planner, history in ((one, batches[0]), (other, batches[1])):
        planner.plan(history)
    assert (one.plan(batches[2]).assignment == other.plan(batches[2]).assignment).all()


def test_plans_carry_the_epoch_they_are_for(make_job, make_batches):
    planner = Planner(make_job(), BANDWIDTHS, [50] * 4, epoch=3)
    plans = planner.plan(make_batches(1, samples=16, fields=3, rows=80, seed=4)[0]).plans
    assert {plan.epoch for plan in (*plans, *planner.flush())} == {3}


def test_phases_add_up_to_the_decision_time(make_job, make_batches):
    planner = Planner(make_job(mechanism="esd"), BANDWIDTHS, [30] * 4)
    decision = planner.plan(make_batches(1, samples=16, fields=3, rows=80, seed=4)[0])
    assert set(decision.seconds) == {"index", "score", "assign", "plan"}
    assert min(decision.seconds.values()) >= 0
    assert decision.decision_seconds == sum(decision.seconds.values()) > 0


def test_a_cache_too_small_for_one_iteration_is_refused_with_the_number_it_needs(make_job, make_batches):
    planner = Planner(make_job(workers=1, workloads=(16,)), [1e6], [5])
    batch = make_batches(1, samples=16, fields=3, rows=1000, seed=4)[0]
    with pytest.raises(ResourceExhausted, match=str(len(np.unique(batch.ids)))):
        planner.plan(batch)


def test_batches_that_do_not_fit_the_job_are_refused(make_job, make_batches):
    planner = Planner(make_job(), BANDWIDTHS, [50] * 4)
    with pytest.raises(InvalidArgument, match="17 samples"):
        planner.plan(make_batches(1, samples=17, fields=3, rows=9, seed=1)[0])
    with pytest.raises(InvalidArgument, match="0 samples"):
        planner.plan(make_batches(1, samples=16, fields=3, rows=9, seed=1)[0][:0])
    with pytest.raises(InvalidArgument, match=r"4 features, the job needs uint64 ids of 3"):
        planner.plan(make_batches(1, samples=16, fields=4, rows=9, seed=1)[0])


@pytest.mark.parametrize(
    ("changes", "bandwidths", "cache_rows", "message"),
    [
        ({}, [1.0] * 3, [9] * 4, "3 bandwidths"),
        ({}, [1.0] * 4, [9] * 5, "5 cache_rows"),
        ({}, [1.0] * 4, [9, 9, 0, 9], "cache_rows of worker 2"),
        ({}, [1.0, 1.0, -1.0, 1.0], [9] * 4, "bandwidth of worker 2"),
        ({"mechanism": "best"}, [1.0] * 4, [9] * 4, "mechanism 'best' is unknown; known are"),
        ({"policy": "fifo"}, [1.0] * 4, [9] * 4, "fifo"),
    ],
)
def test_a_planner_that_cannot_work_is_refused(make_job, changes, bandwidths, cache_rows, message):
    with pytest.raises(InvalidArgument, match=message):
        Planner(make_job(**changes), bandwidths, cache_rows)


@pytest.mark.parametrize(
    ("mechanism", "options", "gap"),
    [("esd", None, 0), ("esd", EsdOptions(0.5), 0), ("esd", EsdOptions(0.0), None), ("laia", None, None)],
)
def test_a_decision_carries_the_certificate_of_its_exact_part(make_job, make_batches, mechanism, options, gap):
    planner = Planner(make_job(mechanism=mechanism, mechanism_options=options), [1e6, 1e6, 1e5, 1e5], [40] * 4)
    for batch in make_batches(4, samples=16, fields=3, rows=80, seed=1):
        assert planner.plan(batch).gap == gap


def test_a_table_takes_rows_up_to_its_limit(make_job, make_batches):
    batches = make_batches(10, samples=16, fields=3, rows=80, seed=3)
    distinct = len(np.unique(np.concatenate([batch.ids for batch in batches])))
    job = dataclasses.replace(make_job(workers=1, workloads=(16,), mechanism="random"), max_rows=distinct)
    planner = Planner(job, BANDWIDTHS[:1], [40])
    for batch in batches:
        planner.plan(batch)
    assert planner.rows == distinct
    one_more = dataclasses.replace(batches[0], ids=batches[0].ids.copy())
    one_more.ids[0] = 10**6
    with pytest.raises(
        ResourceExhausted, match=f"iteration 10 brings .* {distinct + 1} rows.* {distinct}: raise max_rows"
    ):
        planner.plan(one_more)


def test_a_full_table_forgets_the_rows_trained_longest_ago(make_job, make_batches):
    """In every cluster each iteration forgets the same rows, as few as possible."""
    batches = make_batches(30, samples=16, fields=3, rows=300, seed=3)
    limit = 60
    last_use: dict[int, int] = {}
    expected = []
    for iteration, batch in enumerate(batches):
        ids = set(batch.ids.ravel().tolist())
        old = sorted(last_use.keys() - ids, key=lambda x: (last_use[x], x))
        expected.append(old[: max(0, len(last_use.keys() | ids) - limit)])
        last_use = {x: at for x, at in last_use.items() if x not in expected[-1]} | dict.fromkeys(ids, iteration)
    assert sum(map(bool, expected)) > 10

    for workloads, mechanism in (((16,), "random"), ((4, 4, 4, 4), "joint")):
        job = make_job(workers=len(workloads), workloads=workloads, mechanism=mechanism)
        job = dataclasses.replace(job, max_rows=limit, at_max_rows=RowLimitPolicy.FORGET)
        planner = Planner(job, BANDWIDTHS[: len(workloads)], [60] * len(workloads))
        for batch, forgotten in zip(batches, expected, strict=True):
            decision = planner.plan(batch)
            assert [plan.forgotten.tolist() for plan in decision.plans] == [forgotten] * len(workloads)
            assert decision.forgotten_rows == len(forgotten)
            assert planner.rows <= limit

    too_small = Planner(dataclasses.replace(job, max_rows=20), BANDWIDTHS, [60] * 4)
    with pytest.raises(ResourceExhausted, match=r"iteration 0 trains \d+ rows, .* 20: raise max_rows"):
        too_small.plan(batches[0])
    with pytest.raises(InvalidArgument, match="without a limit"):
        dataclasses.replace(job, max_rows=0)
