"""Brute force is the reference for the other mechanisms, so it is checked against nothing but counting."""

import dataclasses
import itertools

import numpy as np
import pytest

from esd.dispatcher.core.cost_model import RowSizes
from esd.dispatcher.core.feedback import Feedback
from esd.dispatcher.core.mechanisms import MECHANISMS, DispatchInput, Replay
from esd.dispatcher.core.mechanisms.brute_force import BruteForce
from esd.dispatcher.core.planner import Planner
from esd.native.engine import Engine
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.features import numbered_ids
from esd.services.domain.sync import WAYS, parse_sync
from esd.services.domain.tables import OptimizerSpec, TableSpec
from tests.support.batches import ids_only

SIZES = RowSizes([TableSpec("t", 8, OptimizerSpec(), seed=0, init_scale=0.1)], numbered_ids(1))
BANDWIDTHS = [4e6, 2e6, 1e6]


def first_iterations(job, batches, mechanism=None):
    planner = Planner(job, BANDWIDTHS, [15, 12, 9], mechanism=mechanism)
    return [planner.plan(batch) for batch in batches]


@pytest.mark.parametrize("workloads", [(2, 2, 1), (0, 3, 2), (5, 0, 0)])
def test_no_assignment_costs_less(make_job, make_batches, workloads):
    """Every assignment of the last batch, after the same history, is replayed through the planner."""
    job = make_job(workers=3, batch_size=5, workloads=workloads, mechanism="brute-force")
    batches = make_batches(6, samples=5, fields=3, rows=12, seed=4)
    *history, chosen = first_iterations(job, batches)
    table = np.array([decision.assignment for decision in (*history, chosen)])
    places = np.repeat(np.arange(3), workloads)
    costs = []
    for assignment in sorted(set(itertools.permutations(places.tolist()))):
        table[-1] = assignment
        costs.append(first_iterations(job, batches, Replay(table, 3))[-1].cost_seconds)
    assert chosen.cost_seconds == pytest.approx(min(costs))
    assert chosen.expected_cost_seconds == pytest.approx(chosen.cost_seconds, rel=0.01)


@pytest.mark.parametrize(
    "sync", sorted({*WAYS, "bounded:0,0", "replicated:2", "bounded:4,4"} - {"bounded", "replicated"})
)
def test_assignments_that_were_tried_leave_nothing(make_job, make_batches, sync):
    """A run that replays the assignments has the same plans and flushes, and no other last assignment costs less."""
    job = make_job(workers=2, batch_size=4, fields=2, mechanism="brute-force", sync=parse_sync(sync))
    batches = make_batches(40, samples=4, fields=2, rows=30, seed=6)

    def run(mechanism=None):
        planner, decisions, flushes = Planner(job, BANDWIDTHS[:2], [14, 12], mechanism=mechanism), [], []
        for t, batch in enumerate(batches):
            if t:
                planner.observe(Feedback(np.full(2, 0.05), np.zeros(2)))  # links are idle most of the time
            decisions.append(planner.plan(batch, batches[t + 1 : t + 11]))
            if t % 15 == 14:
                flushes.append(planner.checkpoint()[0])
        flushes.append(planner.flush())
        return decisions, [[flush.rows.ids.tolist() for flush in each] for each in flushes]

    decisions, flushes = run()
    table = np.array([decision.assignment for decision in decisions])
    told, flushed = run(Replay(table, 2))
    assert [decision.messages for decision in decisions] == [decision.messages for decision in told]
    assert flushes == flushed
    costs = []
    for places in itertools.combinations(range(4), 2):
        table[-1] = np.isin(range(4), places)
        costs.append(run(Replay(table, 2))[0][-1].cost_seconds)
    assert decisions[-1].cost_seconds == pytest.approx(min(costs))


@pytest.mark.parametrize("mechanism", sorted(set(MECHANISMS) - {"brute-force"}))
def test_no_mechanism_beats_it_from_the_same_state(make_job, make_batches, mechanism):
    job = make_job(workers=3, batch_size=3, mechanism=mechanism)
    batches = make_batches(25, samples=3, fields=3, rows=15, seed=9)
    decisions = first_iterations(job, batches)
    table = np.array([decision.assignment for decision in decisions])
    for t in range(1, len(batches)):
        oracle = first_iterations(
            dataclasses.replace(job, mechanism="brute-force"), batches[: t + 1], _Switch(Replay(table, 3), t)
        )[-1]
        assert oracle.cost_seconds <= decisions[t].cost_seconds + 1e-12


class _Switch:
    """Replays a history, then decides by brute force."""

    lookahead = 0

    def __init__(self, history, iteration):
        self._history, self._iteration = history, iteration

    def decide(self, problem):
        return (BruteForce() if problem.iteration == self._iteration else self._history).decide(problem)


def test_an_assignment_that_no_cache_has_room_for_is_not_chosen():
    """Sample 0 and 1 share no id: only apart do they fit."""
    engine = Engine([2, 2], "lru")
    ids = np.array([[1, 2], [3, 4], [3, 4], [1, 2]], np.uint64)
    engine.prepare(ids)
    batch = ids_only(ids)
    problem = DispatchInput(engine, batch, np.array([2, 2], np.int32), 0, np.ones(2, np.int32), SIZES)
    assert BruteForce().decide(problem).workers.tolist() == [0, 1, 1, 0]


def test_too_many_assignments_are_refused():
    engine = Engine([50] * 4, "lru")
    ids = np.arange(16, dtype=np.uint64)[:, None]
    engine.prepare(ids)
    with pytest.raises(InvalidArgument, match=r"6\.31e\+07 assignments of 16 samples to 4 workers"):
        BruteForce().decide(
            DispatchInput(engine, ids_only(ids), np.full(4, 4, np.int32), 0, np.ones(4, np.int32), SIZES)
        )
