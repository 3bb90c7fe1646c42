"""Rows that go straight to the only worker that needs them: the right ones, and without any other change."""

from __future__ import annotations

import re

import numpy as np
import pytest

from esd.dispatcher.core.planner import Planner
from esd.dispatcher.simulator.simulate import simulate
from esd.protos import dispatcher_pb2 as pb
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.jobs import RowLimitPolicy
from esd.services.domain.plans import DirectRows
from esd.services.domain.sync import WAYS, OnDemand, parse_sync
from esd.services.wire.plans import decode_plan_messages
from tests.support.plan_messages import message_of

BANDWIDTHS = [4e6, 2e6, 1e6]
ROOMS = [40, 30, 50]


@pytest.mark.parametrize("mechanism", ["random", "laia", "esd", "joint"])
@pytest.mark.parametrize("policy", ["emark", "lru"])
@pytest.mark.parametrize("longest", [None, 3])
def test_workers_that_do_what_plans_say_train_every_row(
    make_job, make_batches, make_cluster, mechanism, policy, longest
):
    """The cluster checks that exactly the permitted rows go directly, and ends with the result of one process."""
    job = make_job(
        workers=3,
        batch_size=12,
        mechanism=mechanism,
        policy=policy,
        sync=OnDemand(direct=True),
        seed=5,
        longest=longest,
    )
    planner, cluster = Planner(job, BANDWIDTHS, ROOMS), make_cluster(ROOMS, direct=True)
    batches = make_batches(50, samples=12, fields=3, rows=90, seed=2, longest=longest)
    direct = early = 0
    for at, batch in enumerate(batches):
        decision = planner.plan(batch, batches[at + 1 : at + 1 + planner.lookahead])
        demanded = cluster.run(batch, decision.assignment, decision.plans)
        assert demanded.update_push.tolist() == decision.operations.update_push.tolist()
        assert demanded.miss_pull.tolist() == decision.operations.miss_pull.tolist()
        sent = [len(plan.direct_pushes) for plan in decision.plans]
        assert decision.direct_rows.tolist() == sent
        assert decision.direct_bytes.tolist() == [rows * job.table.row_transfer_bytes for rows in sent]
        direct += sum(sent)
        early += sum(int((plan.direct_pushes.places < plan.update_rows.early).sum()) for plan in decision.plans)
        assert [decode(message) for message in decision.messages] == [named(plan) for plan in decision.plans]
        assert list(decision.messages) == [message_of(plan, job.fields) for plan in decision.plans]
        if at == 25:
            flushes, _ = planner.checkpoint()
            cluster.flush(flushes)
    assert 0 < early < direct
    cluster.flush(planner.flush())


def named(plan):
    return [
        (rows.ids[part.places].tolist(), part.peers.tolist())
        for rows, part in ((plan.update_rows, plan.direct_pushes), (plan.pulls, plan.direct_pulls))
    ]


def decode(message):
    (plan,) = decode_plan_messages(pb.AttendResponse.FromString(message))
    return named(plan)


@pytest.mark.parametrize("forgets", [False, True])
def test_nothing_else_is_decided_and_charged(make_job, make_batches, forgets):
    limit = {"max_rows": 60, "at_max_rows": RowLimitPolicy.FORGET} if forgets else {}
    batches = make_batches(60, samples=12, fields=3, rows=120, seed=4)
    plain, direct = (
        Planner(
            make_job(workers=3, batch_size=12, mechanism="esd", sync=OnDemand(direct=direct), **limit),
            BANDWIDTHS,
            ROOMS,
        )
        for direct in (False, True)
    )
    sent = 0
    for batch in batches:
        without, decision = plain.plan(batch), direct.plan(batch)
        assert decision.assignment.tolist() == without.assignment.tolist()
        assert decision.cost_seconds == without.cost_seconds
        assert decision.columns.counts.tolist() == without.columns.counts.tolist()
        assert not without.direct_rows.any()
        assert without.plan_bytes <= decision.plan_bytes
        assert (without.plan_bytes == decision.plan_bytes) == (not decision.direct_rows.any())
        sent += int(decision.direct_rows.sum())
    assert sent


def test_a_simulation_adds_up_what_goes_directly(make_job, make_batches):
    job = make_job(workers=3, batch_size=12, sync=OnDemand(direct=True))
    batches = make_batches(20, samples=12, fields=3, rows=60, seed=3)
    totals = simulate(Planner(job, BANDWIDTHS, [60] * 3), batches)
    again = Planner(job, BANDWIDTHS, [60] * 3)
    rows = sum(again.plan(batch).direct_rows for batch in batches)
    assert totals.direct_rows.tolist() == rows.tolist()
    assert totals.direct_bytes.tolist() == (rows * job.table.row_transfer_bytes).tolist()
    assert (totals.direct_rows <= totals.operations.update_push).all()


def test_places_are_told_table_by_table():
    ids = np.array([5, 1 << 56, 7, (1 << 56) + 3, 9], np.uint64)
    direct = DirectRows(np.array([1, 2, 4], np.uint32), np.array([0, 2, 1], np.uint32))
    first, second = direct.by_table(ids, 2)
    assert (first.places.tolist(), first.peers.tolist()) == ([1, 2], [2, 1])
    assert (second.places.tolist(), second.peers.tolist()) == ([0], [0])


@pytest.mark.parametrize("name", [name for name in WAYS if name != OnDemand.name])
def test_other_ways_to_synchronise_send_nothing_directly(name):
    numbers = {"replicated": ":1", "bounded": ":1,1"}
    with pytest.raises(InvalidArgument, match=re.escape(f"--sync on-demand, where workers own rows; --sync is {name}")):
        parse_sync(name + numbers.get(name, ""), direct=True)
