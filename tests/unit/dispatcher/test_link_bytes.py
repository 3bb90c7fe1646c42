"""A simulation counts all bytes on the links, and balanced workloads follow from all of them."""

from dataclasses import replace

import numpy as np
import pytest

from esd.dispatcher.core.planner import Planner
from esd.dispatcher.simulator.link_bytes import LinkBytes
from esd.dispatcher.simulator.simulate import simulate
from esd.services.domain.dense_sums import AllReduce, Every, LowRank, ServerSum
from esd.services.domain.reports import LINK_DIRECTIONS
from esd.services.domain.sync import Replicated

BANDWIDTHS = [625e6, 625e6, 62.5e6, 62.5e6]
SHAPES = ((300, 100), (300,))


@pytest.mark.parametrize("way", [ServerSum(), AllReduce(), LowRank(4), Every(4)])
@pytest.mark.parametrize("sync", [None, Replicated(8)])
def test_every_byte_counts_once(make_job, make_batches, way, sync):
    job = replace(make_job(mechanism="joint"), dense_sum=way)
    job = job if sync is None else replace(job, sync=sync)
    batches = list(make_batches(80, samples=16, fields=3, rows=80, seed=6))
    link = LinkBytes(job, SHAPES)
    totals = simulate(Planner(job, BANDWIDTHS, [40] * 4), batches, sample_seconds=[1e-5] * 4, warm_up=70, link=link)

    of_rows = link.counted["rows", "up"] + link.counted["rows", "down"] + link.counted["gradients", "up"]
    np.testing.assert_array_equal(of_rows, totals.moved_bytes.total - totals.unsent_bytes)
    assert link.counted["gradients", "up"].any()
    assert link.counted["plans", "down"].sum() == totals.plan_bytes
    floats = way.dense_floats(SHAPES, job.model.dense_optimizer.values_per_parameter)
    dense = 10 * way.sent_bytes(floats, 4) + totals.reduced_bytes
    assert totals.reduced_bytes.any() == (sync is not None)
    for end in LINK_DIRECTIONS:
        np.testing.assert_array_equal(link.counted["dense", end], dense)
        carried = sum(link.counted[kind, end] for kind in ("rows", "gradients", "dense", "plans"))
        assert (link.counted["framing", end] > 0.045 * carried).all()
        assert (link.counted["framing", end] < 0.1 * carried + 10 * 4 * 80).all()


def test_the_makespan_has_all_of_them(make_job, make_batches):
    job = replace(make_job(mechanism="random"), dense_sum=ServerSum())
    batches = list(make_batches(12, samples=16, fields=3, rows=80, seed=6))
    planner = Planner(job, BANDWIDTHS, [40] * 4)
    expected, unsent = 0.0, 0
    for batch in batches:
        decision = planner.plan(batch)
        plans = np.array([len(message) for message in decision.messages])
        carried = decision.moved_bytes.total - decision.unsent_bytes + plans + 4 * (300 * 100 + 300)
        expected += float((carried / BANDWIDTHS + 1e-5 * decision.workloads).max())
        unsent += decision.unsent_bytes
    link = LinkBytes(job, SHAPES)
    totals = simulate(Planner(job, BANDWIDTHS, [40] * 4), batches, sample_seconds=[1e-5] * 4, link=link)
    assert unsent.tolist() == totals.unsent_bytes.tolist() == (4 * job.table.dimension * totals.initial_pulls).tolist()
    assert unsent.any()
    assert link.makespan_seconds == pytest.approx(expected)


def test_balanced_workloads_leave_few_samples_to_a_link_that_dense_sums_fill(make_job, make_batches):
    job = replace(make_job(mechanism="joint"), dense_sum=ServerSum(), workload_limits=(1, 16))
    batches = list(make_batches(60, samples=16, fields=3, rows=80, seed=6))
    means = []
    for shapes in ((), ((1000, 1000),)):
        planner = Planner(job, BANDWIDTHS, [60] * 4)
        totals = simulate(planner, batches, sample_seconds=[1e-3] * 4, link=LinkBytes(job, shapes))
        means.append(totals.workloads)
    assert (means[0] > 3).all(), "computation decides, which is equal"
    assert (means[1][2:] < 1.5).all(), "the sum takes 64 ms on a slow link, and all samples take 16"
