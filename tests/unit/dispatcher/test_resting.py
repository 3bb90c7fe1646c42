"""Workers that rest, return, give and store; and balanced workloads with such workers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from esd.dispatcher.core.feedback import Feedback
from esd.dispatcher.core.planner import Planner
from esd.dispatcher.core.resting import Resting
from esd.services.domain.dense_roles import DenseRole
from esd.services.domain.dense_sums import ALL_REDUCE, Every, LowRank, ServerSum
from esd.services.domain.sync import parse_sync
from esd.services.domain.tables import OptimizerKind, OptimizerSpec
from esd.services.domain.worker_set import WorkerSet
from esd.services.wire.attend import decode_response

SHORT = {
    DenseRole.TRAINS: ".", DenseRole.RESTS: "r", DenseRole.GIVES: "g",
    DenseRole.RETURNS: "<", DenseRole.TRAINS_ON: ",", DenseRole.RESTS_ON: "R",
}  # fmt: skip


@pytest.fixture
def resting(make_job):
    def make(optimizer=OptimizerKind.SGD, links=(1.0, 1.0, 1.0), members=None, **changes):
        job = make_job(workers=len(links), workloads=(4,) * len(links), batch_size=4 * len(links))
        model = replace(job.model, dense_optimizer=OptimizerSpec(optimizer, 0.1))
        job = replace(job, **{"dense_sum": ServerSum(), "model": model} | changes)
        return Resting(job, members or WorkerSet.all_of(len(links)), links, allowed=True)

    return make


def roles(rests: Resting, *workloads: str) -> list[str]:
    """The roles of workers in iterations, whose samples are digits."""
    return [
        "".join(SHORT[DenseRole(role)] for role in rests.plan(np.array([int(each) for each in of_workers])).tolist())
        for of_workers in workloads
    ]


@pytest.mark.parametrize(
    ("optimizer", "moments"), [(OptimizerKind.SGD, 0), (OptimizerKind.ROWWISE_ADAGRAD, 1), (OptimizerKind.ADAM, 2)]
)
def test_a_worker_rests_after_as_many_iterations_as_a_return_costs(resting, optimizer, moments):
    assert roles(resting(optimizer), *6 * ["110"]) == (1 + moments) * ["..."] + (5 - moments) * ["..r"]


def test_a_worker_with_a_fixed_workload_of_0_rests_at_once(resting):
    fixed = {"workloads": (6, 6, 0), "optimizer": OptimizerKind.ADAM}
    assert roles(resting(**fixed), "110", "110") == ["..r", "..r"]
    assert roles(resting(**fixed, workload_limits=(0, 12)), "110", "111") == ["...", "..."]
    assert roles(resting(**fixed, sites=("a", "b", "b")), "110", "111") == ["...", "..."]
    assert roles(resting(**fixed, dense_sum=ALL_REDUCE), "110", "110") == ["...", "..."]


def test_a_worker_returns_with_its_first_samples_and_then_rests_anew(resting):
    found = roles(resting(), "110", "110", "110", "111", "110", "110", "011", "100")
    assert found == ["...", "..r", "..r", "g,<", "...", "..r", "g,<", "..."]


def test_sums_and_returns_cost_at_most_twice_the_best(resting):
    """The best of each pause is to rest at once, or never."""
    rng = np.random.default_rng(3)
    for cost, optimizer in enumerate((OptimizerKind.SGD, OptimizerKind.ROWWISE_ADAGRAD, OptimizerKind.ADAM), 1):
        pauses = rng.integers(1, 9, 40).tolist()
        workloads = [each for pause in pauses for each in ["11", *pause * ["10"]]] + ["11"]
        found = [each[1] for each in roles(resting(optimizer, links=(1.0, 1.0)), *workloads)]
        carried = sum({"r": 0, "<": 1 + cost}.get(each, 1) for each in found)
        best = len(pauses) + 1 + sum(min(pause, cost) for pause in pauses)
        assert carried - len(pauses) - 1 <= 2 * (best - len(pauses) - 1)


def test_the_fastest_with_the_newest_copy_gives_and_the_first_stores(resting):
    rests = resting(links=(9.0, 1.0, 5.0))
    assert rests.keeper == 0
    assert roles(rests, "010", "011", "010") == ["...", "r..", "r.."]
    assert rests.keeper == 1
    assert roles(rests, "111") == ["<,g"]
    assert rests.keeper == 0


def test_a_worker_that_begins_to_rest_gives_nothing(resting):
    rests = resting(links=(9.0, 1.0, 5.0))
    assert roles(rests, "110", "010", "001") == ["...", "..r", "Rg<"]


def test_absent_workers_neither_rest_nor_give_nor_store(resting):
    rests = resting(links=(9.0, 1.0, 5.0), members=WorkerSet.of([1, 2]))
    assert rests.keeper == 1
    assert roles(rests, "010", "010", "001") == ["...", "..r", ",g<"]


@pytest.mark.parametrize("way", [ALL_REDUCE, LowRank(2), Every(3)], ids=str)
def test_nobody_rests_where_every_worker_needs_the_sums(resting, way):
    assert set(roles(resting(dense_sum=way), *9 * ["110"])) == {"..."}
    assert set(roles(resting(dense_sum=ServerSum(), sync=parse_sync("replicated:4")), *9 * ["110"])) == {"..."}


@pytest.mark.parametrize("rests", [False, True], ids=["own loops", "built-in workers"])
def test_plans_tell_each_worker_its_role_and_one_to_store(make_job, make_batches, rests):
    job = replace(make_job(workers=3, workloads=(0, 8, 8), batch_size=16), dense_sum=ServerSum())
    planner = Planner(job, [1e6] * 3, [200] * 3, rests=rests)
    for batch in make_batches(8, samples=16, fields=job.fields, rows=50, seed=2):
        decision = planner.plan(batch)
        told = [decode_response(message).messages[0].dense_role for message in decision.messages]
        assert told == [plan.dense_role for plan in decision.plans]
    assert told == [DenseRole.RESTS if rests else DenseRole.TRAINS, DenseRole.TRAINS, DenseRole.TRAINS]
    for flushes in (planner.checkpoint()[0], planner.flush()):
        assert [each.stores_dense for each in flushes] == ([False, True, False] if rests else [True, False, False])


def test_a_worker_that_rests_is_not_taken_for_one_whose_link_is_free(make_job, make_batches):
    """Else balanced workloads would give it samples, it would return, and so on."""
    job = replace(
        make_job(mechanism="joint", workers=2, workloads=(8, 8), batch_size=16), dense_sum=ServerSum(),
        workload_limits=(0, 16), window=2,
    )  # fmt: skip
    planner = Planner(job, [1e6, 1e6], [400] * 2, rests=True)
    decisions = []
    for t, batch in enumerate(make_batches(60, samples=16, fields=job.fields, rows=50, seed=2)):
        if t >= 2:
            sums = np.isin(decisions[t - 2].roles, (DenseRole.TRAINS, DenseRole.TRAINS_ON))
            times = decisions[t - 2].link_seconds + 1e-5 * decisions[t - 2].workloads
            planner.observe(Feedback(times, np.zeros(2), 0.0, np.where(sums, [0.001, 1.0], 0.0)))
        decisions.append(planner.plan(batch))
    assert [each.workloads[1] for each in decisions[-50:]] == 50 * [0]
    assert {each.roles[1] for each in decisions[-50:]} == {DenseRole.RESTS}
