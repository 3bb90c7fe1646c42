"""The gain by looking at the next batches, and that no other batches are needed."""

import numpy as np
import pytest

from esd.dispatcher.core.planner import Planner
from esd.dispatcher.simulator.simulate import simulate, trace_batches, with_lookahead
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.mechanisms import JointOptions

BANDWIDTHS = [625e6, 625e6, 62.5e6, 62.5e6]


def clustered(samples, seed):
    """Ids of samples that belong to 40 groups, four of the six fields drawn within the group: uint64 [samples, 6]."""
    rng = np.random.default_rng(seed)
    group = 60 * rng.integers(0, 40, (samples, 1))
    within = group + 60 * rng.random((samples, 4)) ** 2
    anywhere = 10_000 + 2000 * rng.random((samples, 2)) ** 2
    return np.hstack([within, anywhere]).astype(np.uint64)


def test_looking_ahead_costs_less(make_job):
    stream = clustered(64 * 120, seed=1)
    costs = {}
    for horizon in (1, 8):
        planner = Planner(
            make_job(mechanism="joint", batch_size=64, fields=6, mechanism_options=JointOptions(horizon)),
            BANDWIDTHS,
            [600] * 4,
        )
        costs[horizon] = simulate(planner, trace_batches(stream, 64)).cost_seconds
    assert costs[8] < 0.98 * costs[1]


@pytest.mark.parametrize("horizon", [2, 5])
def test_plans_train_the_model_of_a_single_process(make_job, make_batches, make_cluster, horizon):
    planner = Planner(make_job(mechanism="joint", mechanism_options=JointOptions(horizon)), BANDWIDTHS, [14] * 4)
    cluster = make_cluster([14] * 4)
    batches = make_batches(40, samples=16, fields=3, rows=80, seed=3)
    for batch, lookahead_batches in with_lookahead([*batches, batches[0][:5]], planner.lookahead):
        decision = planner.plan(batch, lookahead_batches)
        assert np.bincount(decision.assignment, minlength=4).max() <= 4
        cluster.run(batch, decision.assignment, decision.plans)
    cluster.flush(planner.flush())


@pytest.mark.parametrize("horizon", [0, 65])
def test_horizons_out_of_range_are_refused(horizon):
    with pytest.raises(InvalidArgument, match=rf"horizon is {horizon}, it must be in 1\.\.64"):
        JointOptions(horizon)
