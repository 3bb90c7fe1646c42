"""Permuting the samples of a batch permutes the decision, and changes nothing else.

True of the mechanisms that minimise a cost: they take samples in order of content. `laia` takes them in turn (Herald,
Alg. 1) and `random` shuffles places, so their decisions depend on the order of the stream.
"""

import dataclasses

import numpy as np
import pytest

from esd.dispatcher.core.planner import Planner
from esd.dispatcher.simulator.simulate import with_lookahead
from esd.services.domain.mechanisms import EsdOptions, JointOptions
from tests.unit.dispatcher.test_planner import plan_bytes

BANDWIDTHS = [625e6, 625e6, 62.5e6, 62.5e6]
OF_SAMPLES = (
    "positions",
    "inverse",
    "dense",
    "labels",
    "lengths",
)  # columns of a plan that are about samples, not rows


def rows_moved(plan):
    """Everything in a plan that is not about single samples."""
    return [plan_bytes(getattr(plan, f.name)) for f in dataclasses.fields(plan) if f.name not in OF_SAMPLES]


def samples_trained(plan):
    """Ids, dense features and label of every sample, in any order."""
    ids = plan.unique_ids[plan.inverse]
    lengths = np.ones((len(plan.labels), 3), int) if plan.lengths is None else plan.lengths.astype(int)
    by_sample = np.split(ids, np.cumsum(lengths.sum(axis=1))[:-1]) if len(lengths) else []
    columns = ([each.tolist() for each in by_sample], lengths.tolist(), plan.dense.tolist(), plan.labels.tolist())
    return sorted(zip(*columns, strict=True))


def all_differ(batch):
    """Whether no two samples have the same ids."""
    return len({batch[at : at + 1].ids.tobytes() for at in range(len(batch))}) == len(batch)


def decisions(job, stream):
    planner = Planner(job, BANDWIDTHS, [40] * 4)
    return [planner.plan(batch, later) for batch, later in with_lookahead(stream, planner.lookahead)]


@pytest.mark.parametrize(
    "changes",
    [
        {"mechanism": "hash"},
        {"mechanism": "history"},
        {"mechanism": "joint"},
        {"mechanism": "joint", "mechanism_options": JointOptions(3)},
        {"mechanism": "joint", "workload_limits": (2, 8)},
        {"mechanism": "esd"},
        {"mechanism": "esd", "mechanism_options": EsdOptions(0.5)},
        {"mechanism": "esd", "mechanism_options": EsdOptions(eviction_term=True)},
        {"mechanism": "esd-priced", "mechanism_options": EsdOptions(0.25)},
    ],
    ids=lambda changes: "-".join(str(value) for value in changes.values()),
)
@pytest.mark.parametrize("longest", [None, 3])
def test_permuting_batches_permutes_decisions(make_job, make_batches, changes, longest):
    rng, job = np.random.default_rng(0), make_job(**changes, longest=longest)
    stream = make_batches(25, samples=16, fields=3, rows=300, seed=4, longest=longest)
    orders = [rng.permutation(len(batch)) for batch in stream]
    plain = decisions(job, stream)
    permuted = decisions(job, [batch[order] for batch, order in zip(stream, orders, strict=True)])
    for batch, one, other in zip(stream, plain, permuted, strict=True):
        assert one.expected_cost_seconds == other.expected_cost_seconds
        assert [rows_moved(plan) for plan in one.plans] == [rows_moved(plan) for plan in other.plans]
        if all_differ(batch):  # else equal samples may change places
            assert list(map(samples_trained, one.plans)) == list(map(samples_trained, other.plans))
    assert any(all_differ(batch) for batch in stream)


def test_permuting_a_batch_leaves_the_least_cost_unchanged(make_job, make_batches):
    history = make_batches(12, samples=6, fields=3, rows=40, seed=4)
    job = make_job(mechanism="brute-force", workers=2, batch_size=6)
    plain, permuted = (Planner(job, BANDWIDTHS[1:3], [30] * 2) for _ in range(2))
    for batch in history[:-1]:
        plain.plan(batch)
        permuted.plan(batch)
    last = history[-1]
    assert permuted.plan(last[::-1]).cost_seconds == plain.plan(last).cost_seconds
