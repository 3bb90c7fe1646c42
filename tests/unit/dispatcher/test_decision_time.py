"""Budgets: decisions by the clock are recorded, and made again without a clock."""

import math
import time

import numpy as np
import pytest

from esd.dispatcher.core.decision_time import DecisionTime, NecessaryTime
from esd.dispatcher.core.feedback import Feedback
from esd.dispatcher.core.mechanisms.esd import AffordableShare
from esd.dispatcher.core.planner import Planner
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.mechanisms import EsdOptions, JointOptions

BANDWIDTHS, CACHES = [4e6, 4e6, 1e6, 1e6], [80] * 4

ADAPTIVE = {
    "joint": {"mechanism": "joint"},
    "horizon": {"mechanism": "joint", "mechanism_options": JointOptions(3)},
    "balanced": {"mechanism": "joint", "workload_limits": (4, 24)},
    "tables": {"mechanism": "laia-adaptive"},
    "alpha": {"mechanism": "esd", "mechanism_options": EsdOptions(auto_alpha=True)},
    "priced": {"mechanism": "esd-priced", "mechanism_options": EsdOptions(auto_alpha=True)},
}


@pytest.mark.parametrize("options", ADAPTIVE.values(), ids=ADAPTIVE)
def test_decisions_under_a_budget_are_made_again_from_their_efforts(make_job, make_batches, options):
    """Iterations are measured to leave no time at all, then about the time of a decision, then plenty."""
    batches = make_batches(40, samples=48, fields=6, rows=150, seed=5)
    job = make_job(batch_size=48, fields=6, auto_budget=True, **options)
    planner, again = (Planner(job, BANDWIDTHS, CACHES) for _ in range(2))
    efforts = set()
    for t, batch in enumerate(batches):
        if t:
            measured = np.full(4, 0.01), np.zeros(4)
            planner.observe(Feedback(*measured, (1e-6, 2e-3, 50)[t * 3 // 40]))
            again.observe(Feedback(*measured))  # a replay looks at no clock
        ahead = batches[t + 1 : t + 1 + planner.lookahead]
        decision = planner.plan(batch, ahead)
        efforts.add(tuple(decision.efforts))
        repeated = again.plan(batch, ahead, decision.efforts)
        assert repeated.assignment.tolist() == decision.assignment.tolist()
        assert (decision.efforts == []) == math.isinf(decision.budget_seconds)
    assert len(efforts) > 2


@pytest.mark.parametrize("options", ADAPTIVE.values(), ids=ADAPTIVE)
def test_no_time_at_all_is_enough_for_a_decision(make_job, make_batches, options):
    batches = make_batches(6, samples=48, fields=6, rows=150, seed=5)
    planner = Planner(make_job(batch_size=48, fields=6, budget_seconds=1e-9, **options), BANDWIDTHS, CACHES)
    for t, batch in enumerate(batches):
        decision = planner.plan(batch, batches[t + 1 : t + 1 + planner.lookahead])
        assert decision.workloads.sum() == 48


def test_a_job_without_a_budget_notes_nothing_and_takes_all_of_alpha(make_job, make_batches):
    (batch,) = make_batches(1, samples=48, fields=6, rows=150, seed=5)
    exact, auto = (
        Planner(
            make_job(batch_size=48, fields=6, mechanism="esd", mechanism_options=EsdOptions(auto_alpha=auto)),
            BANDWIDTHS,
            CACHES,
        ).plan(batch)
        for auto in (False, True)
    )
    assert auto.efforts == []
    assert auto.assignment.tolist() == exact.assignment.tolist()


def test_the_exact_share_is_what_the_time_allows():
    share = AffordableShare(0.8)
    share.learn(exact_seconds=1.0, exact_samples=100, seconds=1.5)
    for left, expected in ((math.inf, 0.8), (9.0, 0.8), (0.9, 0.4), (0.5, 0.0), (-1.0, 0.0)):
        began = time.perf_counter()
        clock = DecisionTime(began + left)
        chosen = share.choose(clock, 100)
        took = time.perf_counter() - began  # which is less time for samples, each of which takes a hundredth
        assert expected - took - 0.005 <= chosen <= expected + 0.005
        assert share.choose(DecisionTime(efforts=clock.efforts), 100) == (chosen if clock.efforts else 0.8)


def test_the_budget_is_the_necessary_time_less_the_rest_of_planning():
    budget = NecessaryTime()
    assert math.isinf(budget.seconds)
    budget.observe(0.0)  # nobody has measured it
    budget.learn(0.25)
    assert math.isinf(budget.seconds)
    budget.observe(1.0)
    assert budget.seconds == 0.75
    for _ in range(50):
        budget.observe(0.125)
    assert budget.seconds == 0.0


def test_a_fixed_budget_and_a_measured_one_exclude_each_other(make_job):
    with pytest.raises(InvalidArgument, match=r"budget_seconds is 0.1, and auto_budget measures it"):
        make_job(budget_seconds=0.1, auto_budget=True)
