"""A planner restored from a checkpoint plans as the one that took it."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace

import numpy as np
import pytest

from esd.dispatcher.core.feedback import Feedback
from esd.dispatcher.core.learned import Snapshot
from esd.dispatcher.core.planner import Planner
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.jobs import RowLimitPolicy
from esd.services.domain.mechanisms import EsdOptions
from esd.services.domain.sync import Proactive
from tests.support.simple_clients import job_with, samples

BANDWIDTHS, CACHE_ROWS = [1e6, 1e5], [30, 25]


def planner(policy="emark", mechanism="esd", snapshot=None):
    job = job_with(policy=policy, mechanism=mechanism)
    return Planner(job, BANDWIDTHS, CACHE_ROWS, snapshot=snapshot)


def batches(count):
    stream = samples(8 * count)
    return [stream[8 * i : 8 * i + 8] for i in range(count)]


def assert_equal(a, b):
    """Dataclasses of arrays, field by field."""
    if is_dataclass(a):
        for field in fields(a):
            assert_equal(getattr(a, field.name), getattr(b, field.name))
    else:
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("policy", ["emark", "lru", "lfu"])
@pytest.mark.parametrize("mechanism", ["random", "history", "laia", "esd"])
def test_the_restored_planner_goes_on_byte_for_byte(policy, mechanism):
    stream = batches(40)
    original = planner(policy, mechanism)
    for batch in stream[:20]:
        original.plan(batch)
    flushes, snapshot = original.checkpoint()
    assert all(flush.checkpoint and flush.iteration == 20 for flush in flushes)
    restored = planner(policy, mechanism, snapshot)
    for batch in stream[20:]:
        for a, b in zip(original.plan(batch).plans, restored.plan(batch).plans, strict=True):
            assert_equal(a, b)


LEARNING = [
    {"workload_limits": (1, 12), "mechanism": "joint"},
    {"workload_limits": (1, 12), "mechanism": "hash"},
    {"workload_limits": (1, 12), "mechanism": "laia", "measured_links": True},
    {"mechanism": "esd", "measured_links": True},
    {"mechanism": "esd", "mechanism_options": EsdOptions(eviction_term=True)},
    {"mechanism": "hash"},
    {"mechanism": "esd", "sync": Proactive()},
]
LINKS, TRUE_LINKS, CACHES = [1e6, 1e6, 1e5, 1e5], [2e5, 1e6, 1e5, 4e5], [16, 16, 16, 20]


def learning_job(**options):
    return job_with(workers=4, batch_size=16, **options)


def run_on(planner, stream, first, end, pending):
    """Plans iterations; every worker's times come two iterations later. Returns the plans' messages."""
    messages = []
    for t in range(first, end):
        if len(pending) == 2:
            planner.observe(pending.pop(0))
        decision = planner.plan(stream[t], stream[t + 1 : t + 1 + planner.lookahead])
        messages.append(decision.messages)
        seconds = decision.moved_bytes.total / TRUE_LINKS + np.array([1, 2, 4, 1]) * 1e-4 * decision.workloads
        pending.append(Feedback(seconds, np.array(TRUE_LINKS)))
    return messages


@pytest.mark.parametrize("cut", [5, 20])  # while hash still profiles, and when it has done so
@pytest.mark.parametrize("options", LEARNING, ids=lambda options: "-".join(map(str, options.values())))
def test_what_was_learned_is_not_forgotten(options, cut):
    """The feedback that was on its way at the checkpoint comes to the restored planner, too."""
    stream, job = turning_stream(50, cut), learning_job(**options)
    original = Planner(job, LINKS, CACHES)
    pending = []
    run_on(original, stream, 0, cut, pending)
    snapshot = original.checkpoint()[1]
    restored = Planner(job, LINKS, CACHES, snapshot=snapshot)
    forgetful = Planner(job, LINKS, CACHES, snapshot=Snapshot(snapshot.engine))
    assert [restored.knows_workers, forgetful.knows_workers] == [True, False]
    expected = run_on(original, stream, cut, 40, list(pending))
    assert run_on(restored, stream, cut, 40, list(pending)) == expected
    assert run_on(forgetful, stream, cut, 40, list(pending)) != expected


def turning_stream(count, turn):
    """Before the turn the last field has few values, so that hash chooses it; after the turn the first field has."""
    stream = []
    for t in range(count):
        ids = samples(16, seed=t).by_field.copy()
        ids[:, 2 if t < turn else 0] %= 3
        stream.append(replace(samples(16, seed=t), ids=ids.ravel()))
    return stream


@pytest.mark.parametrize("changes", [{"bandwidths": [1e6, 1e6, 1e5, 2e5]}, {"worker_limits": [(0, 16)] * 3 + [(5, 9)]}])
def test_what_was_learned_of_workers_is_theirs(changes):
    """With another link, or within other limits, workloads begin as they do in a new job."""
    job, arguments = learning_job(workload_limits=(1, 12), mechanism="laia"), {"bandwidths": LINKS} | changes
    original = Planner(job, LINKS, CACHES)
    run_on(original, turning_stream(20, 20), 0, 20, [])
    restored = Planner(job, cache_rows=CACHES, snapshot=original.checkpoint()[1], **arguments)
    assert not restored.knows_workers
    assert restored.workloads == Planner(job, cache_rows=CACHES, **arguments).workloads != original.workloads


FULL = {"max_rows": 30, "at_max_rows": RowLimitPolicy.FORGET}


@pytest.mark.parametrize(("workers", "warm"), [(2, True), (4, False)])
def test_a_full_table_goes_on_forgetting_the_same_rows(workers, warm):
    """The decisions of joint stay the same where the caches do: its knowledge of forgotten rows is kept."""
    stream = batches(60)
    original = Planner(job_with(mechanism="joint", **FULL), BANDWIDTHS, CACHE_ROWS)
    for batch in stream[:30]:
        original.plan(batch)
    job = job_with(mechanism="joint", workers=workers, **FULL)
    caches = CACHE_ROWS if warm else [30] * workers
    restored = Planner(
        job, BANDWIDTHS if warm else [1e6] * workers, caches, snapshot=original.checkpoint()[1], warm=warm
    )
    forgotten = 0
    for batch in stream[30:]:
        before, after = original.plan(batch).plans, restored.plan(batch).plans
        assert before[0].forgotten_below == after[0].forgotten_below
        assert before[0].forgotten.tolist() == after[0].forgotten.tolist()
        assert versions_of(before) == versions_of(after)
        forgotten += len(before[0].forgotten)
        if warm:
            np.testing.assert_array_equal(before[0].positions, after[0].positions)
    assert forgotten > 100


def versions_of(plans):
    """The rows that the plans of an iteration train, with their versions."""
    columns = (np.concatenate([getattr(plan, name) for plan in plans]) for name in ("unique_ids", "unique_versions"))
    return dict(zip(*(column.tolist() for column in columns), strict=True))


def test_a_reload_is_what_the_plans_build_on():
    """Caches with exactly the rows of the reloads have each row where the next plans expect it."""
    stream = batches(30)
    original = planner()
    for batch in stream[:20]:
        original.plan(batch)
    restored = planner(snapshot=original.checkpoint()[1])
    reloads = restored.reloads()
    caches = [dict(zip(each.rows.slots.tolist(), each.rows.ids.tolist(), strict=True)) for each in reloads]
    versions = {int(i): int(v) for r in reloads for i, v in zip(r.rows.ids, r.rows.versions, strict=True)}
    found = 0
    for plan, cache in zip(restored.plan(stream[20]).plans, caches, strict=True):
        pulled = set(plan.pulls.ids.tolist())
        for row, slot, version in zip(plan.unique_ids, plan.unique_slots, plan.unique_versions, strict=True):
            if int(row) not in pulled:
                assert cache[int(slot)] == int(row)
                assert versions[int(row)] == int(version)
                found += 1
    assert found > 0


def test_a_snapshot_of_other_caches_is_refused():
    snapshot = planner().checkpoint()[1]
    with pytest.raises(InvalidArgument, match="snapshot"):
        Planner(job_with(policy="emark"), BANDWIDTHS, [30, 26], snapshot=snapshot)


def test_other_workers_begin_with_empty_caches_and_the_versions_of_the_rows():
    stream = batches(30)
    original = planner()
    trained = {}
    for batch in stream[:20]:
        for plan in original.plan(batch).plans:
            trained.update(zip(plan.unique_ids.tolist(), (plan.unique_versions + 1).tolist(), strict=True))
    snapshot = original.checkpoint()[1]
    job = job_with(policy="lru", mechanism="esd", workers=4, workloads=(2, 2, 2, 2))
    cold = Planner(job, [1e6] * 4, [40] * 4, snapshot=snapshot, warm=False)
    assert all(len(each.rows) == len(each.outdated) == 0 for each in cold.reloads())
    first = cold.plan(stream[20])
    assert first.iteration == 20
    assert first.hits == 0
    for plan in first.plans:
        versions = dict(zip(plan.pulls.ids.tolist(), plan.pulls.versions.tolist(), strict=True))
        assert versions == {row: trained.get(row, 0) for row in plan.unique_ids.tolist()}


def test_a_snapshot_that_was_not_flushed_needs_its_caches():
    original = planner()
    for batch in batches(3):
        original.plan(batch)
    with pytest.raises(InvalidArgument, match="not taken after a flush"):
        Planner(
            job_with(policy="emark"), BANDWIDTHS, CACHE_ROWS, snapshot=Snapshot(original._engine.snapshot()), warm=False
        )
