from collections import Counter

import numpy as np
import pytest

from esd.dispatcher.core.cost_model import RowSizes
from esd.dispatcher.core.mechanisms import DispatchInput, Replay
from esd.dispatcher.core.mechanisms.draws import draws, first_draw
from esd.dispatcher.core.mechanisms.hash import Hash
from esd.dispatcher.core.mechanisms.history import History
from esd.dispatcher.core.mechanisms.laia import Laia, allocate
from esd.dispatcher.core.mechanisms.random import Random
from esd.native import solver
from esd.native.engine import Engine
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.features import numbered_ids
from esd.services.domain.mechanisms import HashOptions
from esd.services.domain.tables import OptimizerSpec, TableSpec
from tests.support.batches import ids_only

SIZES = RowSizes([TableSpec("t", 8, OptimizerSpec(), seed=0, init_scale=0.1)], numbered_ids(1))


def int32(values):
    return np.array(values, np.int32)


def decide(mechanism, engine, capacities, iteration, ids=None, **more):
    """Asks for an assignment; without ids the batch is as large as the capacities and says nothing."""
    ids = np.zeros((sum(capacities), 1), np.uint64) if ids is None else ids
    link_costs = np.ones(len(capacities), np.int32)
    return mechanism.decide(
        DispatchInput(engine, ids_only(ids), int32(capacities), iteration, link_costs, SIZES, **more)
    )


def test_draws_are_pinned_and_depend_on_seed_iteration_and_position_alone():
    assert draws(7, 0, 3).tolist() == draws(7, 0, 1000)[:3].tolist()
    assert draws(7, 0, 2).tolist() == [6538882823972920244, 8080008180880102241]
    everything = np.concatenate([draws(seed, t, 50) for seed in (0, 1, 2**64 - 1) for t in range(20)])
    assert len(np.unique(everything)) == len(everything)
    for seed, t in ((0, 0), (7, 3), (2**64 - 1, 2**30)):
        assert first_draw(seed, t) == draws(seed, t, 1)[0]


def test_draws_are_uniform():
    bits = np.unpackbits(draws(3, 5, 20_000).view(np.uint8).reshape(-1, 8), axis=1)
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 5 * 0.5 / np.sqrt(20_000)


def test_random_dispatch_is_uniform_over_assignments(make_job):
    """All 4! / (2! 1! 1!) = 12 assignments of 4 samples come up equally often."""
    mechanism, engine = Random(make_job(seed=1)), Engine([1, 1, 1], "lru")
    seen = Counter(tuple(decide(mechanism, engine, [2, 1, 1], t).workers.tolist()) for t in range(6000))
    assert len(seen) == 12
    assert max(abs(count - 500) for count in seen.values()) < 5 * np.sqrt(500)


@pytest.fixture
def warm_engine(make_job, make_batches):
    """An engine with history, and the next batch prepared."""
    *history, last = make_batches(12, samples=24, fields=4, rows=60, seed=8)
    engine = Engine([60] * 3, "emark")
    mechanism = Random(make_job(seed=2))
    for t, batch in enumerate(history):
        engine.prepare(batch.by_field)
        engine.commit(decide(mechanism, engine, [8, 8, 8], t).workers)
    engine.prepare(last.by_field)
    return engine


@pytest.mark.parametrize("capacities", [[8, 8, 8], [20, 3, 1], [0, 24, 0], [12, 0, 12]])
def test_laia_gives_each_sample_in_turn_the_best_worker_with_room(make_job, warm_engine, capacities):
    scores = warm_engine.affinity()
    assignment = decide(Laia(make_job(seed=5, mechanism="laia")), warm_engine, capacities, 11).workers
    room = int32(capacities)
    for sample, worker in enumerate(assignment):
        assert room[worker] > 0
        assert scores[sample, worker] == scores[sample, room > 0].max()
        room[worker] -= 1
    assert not room.any()


@pytest.mark.parametrize("capacities", [[40], [14, 13, 13], [0, 39, 1, 0, 0]])
def test_allocation_equals_its_reference(capacities):
    """Integer scores, ties broken by the fraction that the draws add: the sums are rounded alike."""
    rng, n = np.random.default_rng(len(capacities)), len(capacities)
    for iteration in range(20):
        scores = rng.integers(0, (1, 3, 100)[iteration % 3] + 1, (40, n)).astype(np.int32)
        ties = (draws(7, iteration, scores.size) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        costs = (scores.max() - scores) + ties.reshape(scores.shape)
        expected = solver.greedy(costs, int32(capacities), np.arange(40, dtype=np.uint32))
        assert (allocate(scores, int32(capacities), 7, iteration) == expected).all()


def test_laia_breaks_ties_evenly(make_job):
    engine, workers = Engine([4] * 4, "lru"), Counter()
    engine.prepare(np.array([[1], [2], [3], [4]], np.uint64))
    laia = Laia(make_job(seed=9, mechanism="laia"))
    for t in range(4000):
        workers[int(decide(laia, engine, [1, 1, 1, 1], t).workers[0])] += 1
    assert max(abs(count - 1000) for count in workers.values()) < 5 * np.sqrt(1000)


def by_field(rng, batches=20, samples=24):
    """Batches in which field 1 says which rows a sample has in fields 2 and 3; field 0 says nothing."""
    for _ in range(batches):
        group = rng.integers(0, 9, samples)
        others = 1000 * group[:, None] + rng.integers(0, 4, (samples, 2))
        noise = rng.integers(10**6, 10**9, samples)
        yield np.column_stack([noise, 500_000 + group, others + 10**5]).astype(np.uint64)


def test_hash_goes_by_the_field_that_promises_most(make_job):
    """It finds it by itself, and then decides as if it had been told."""
    chosen, told = (
        Hash(make_job(fields=4, mechanism="hash")),
        Hash(make_job(fields=4, mechanism="hash", mechanism_options=HashOptions(1))),
    )
    other = Hash(make_job(fields=4, mechanism="hash", mechanism_options=HashOptions(0)))
    engine, differs = Engine([96] * 3, "lru"), 0
    for t, ids in enumerate(by_field(np.random.default_rng(3))):
        engine.prepare(ids)
        one, two = (decide(m, engine, [8, 8, 8], t, ids).workers.tolist() for m in (chosen, told))
        differs += one != decide(other, engine, [8, 8, 8], t, ids).workers.tolist()
        if t:
            assert one == two
    assert differs == 20


def test_hash_refuses_a_field_that_samples_do_not_have(make_job):
    with pytest.raises(InvalidArgument, match=r"hash_field is 3, it must be in 0\.\.2"):
        make_job(fields=3, mechanism="hash", mechanism_options=HashOptions(3))


def test_history_goes_by_the_shares_of_past_trainings(make_job):
    engine = Engine([20] * 3, "lru")
    for ids, worker in (([[1, 2]], 0), ([[1, 3]], 1), ([[1, 4]], 0)):
        engine.prepare(np.array(ids, np.uint64))
        engine.training_shares()
        engine.commit(int32([worker]))
    engine.prepare(np.array([[1, 2], [1, 3], [3, 3], [9, 8]], np.uint64))
    share = 4096
    assert engine.training_shares().tolist() == [
        [share * 2 // 3 + share, share // 3, 0],
        [share * 2 // 3, share // 3 + share, 0],
        [0, share, 0],  # a repeated id counts once
        [0, 0, 0],
    ]
    ids = np.array([[1, 2], [1, 3], [3, 3], [9, 8]], np.uint64)
    assert decide(History(), engine, [1, 2, 1], 3, ids).workers.tolist() == [0, 1, 1, 2]


def test_shares_of_past_trainings_equal_their_reference_and_outlive_a_snapshot():
    rng, trainings = np.random.default_rng(0), Counter()
    engine, n = Engine([90] * 3, "lru", max_rows=60), 3
    for t in range(40):
        ids = rng.integers(0, 120, (10, 3)).astype(np.uint64)
        engine.prepare(ids)
        expected = np.zeros((10, n), int)
        for i, sample in enumerate(ids.tolist()):
            for x in set(sample):
                total = sum(trainings[x, j] for j in range(n))
                expected[i] += [4096 * trainings[x, j] // total if total else 0 for j in range(n)]
        np.testing.assert_array_equal(engine.training_shares(), expected)
        workers = rng.integers(0, n, 10).astype(np.int32)
        plans = engine.commit(workers)
        for x in plans[0]["forgotten"].tolist():
            for j in range(n):
                trainings[x, j] = 0
        for x, j in {(x, int(j)) for sample, j in zip(ids.tolist(), workers, strict=True) for x in sample}:
            trainings[x, j] += 1
        if t == 20:
            engine.flush()
            snapshot, engine = engine.snapshot(), Engine([90] * 3, "lru", max_rows=60)
            engine.restore(snapshot)


def test_replay_follows_the_table_and_shortens_its_last_row():
    replay, engine = Replay(int32([[0, 1, 1], [1, 1, 1]]), workers=2), Engine([1, 1], "lru")
    assert decide(replay, engine, [2, 1], 0).workers.tolist() == [0, 1, 1]
    assert decide(replay, engine, [1, 1], 1).workers.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("assignments", "message"),
    [(int32([0, 1]), r"\(2,\)"), (int32([[0, 2]]), "sample 1 in iteration 0 is 2"), (int32([[0], [-1]]), "is -1")],
)
def test_replay_refuses_a_table_that_names_no_workers(assignments, message):
    with pytest.raises(InvalidArgument, match=message):
        Replay(assignments, workers=2)


@pytest.mark.parametrize(("capacities", "iteration"), [([1, 1], 2), ([2, 2], 0)])
def test_replay_refuses_what_its_table_does_not_cover(capacities, iteration):
    with pytest.raises(InvalidArgument, match="cover 2 x 3"):
        decide(Replay(int32([[0, 1, 1], [1, 1, 1]]), workers=2), Engine([1, 1], "lru"), capacities, iteration)


def test_mechanisms_do_not_change_the_state(make_job, warm_engine):
    before = warm_engine.snapshot()
    for mechanism in (Random(make_job()), Laia(make_job(mechanism="laia")), Hash(make_job(mechanism="hash"))):
        decide(mechanism, warm_engine, [8, 8, 8], 11)
    assert warm_engine.snapshot() == before
