"""The native engine equals the plain Python reference on random streams, column by column."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pytest

from esd.native.engine import CacheTooSmall, Engine, OnDemand, Proactive, PushAll, Replicated
from tests.support.worker_sets import listed
from tests.unit.native.engine_pairs import native_engine, prepare_both
from tests.unit.native.reference_engine import PROFILE, ReferenceEngine

if TYPE_CHECKING:  # in its stub only
    from esd.native.engine import CacheColumns, IterationColumns

TRANSFERS = ("update_rows", "evict_rows", "drops", "discards", "pulls")
POLICIES = ("emark", "emark-size", "reuse", "lru", "lfu", "static")
GRADIENTS = ("update_gradients", "evict_gradients")


def assert_columns(actual: dict, transfers: list[tuple], gradients: bool, where: str) -> None:
    """Early ones come first, otherwise they have the order of the reference."""
    names = ("ids", "slots", "versions") + (("contributors", "steps") if gradients else ())
    found = list(zip(*(listed(actual[name]) for name in names), strict=True))
    ordered = sorted(transfers, key=lambda transfer: not transfer[0])
    assert found == [transfer[1:] for transfer in ordered], where
    assert actual["early"] == sum(transfer[0] for transfer in transfers), where


def assert_plans(actual: list[dict], expected: list[dict]) -> None:
    for j, (plan, planned) in enumerate(zip(actual, expected, strict=True)):
        where = f"iteration {planned['iteration']}, worker {j}"
        assert plan["iteration"] == planned["iteration"]
        assert plan["forgotten"].tolist() == planned["forgotten"], where
        assert plan["forgotten_below"] == planned["forgotten_below"], where
        for kind in TRANSFERS + GRADIENTS:
            assert_columns(plan[kind], planned[kind], kind in GRADIENTS, f"{where}, {kind}")
        uniques = ("unique_ids", "unique_slots", "unique_versions", "unique_contributors")
        for name in ("positions", *uniques, "reduced", "inverse"):
            assert listed(plan[name]) == planned[name], f"{where}, {name}"
        for kind, moved in (("direct_pushes", "update_rows"), ("direct_pulls", "pulls")):
            places, peers = plan[kind]["places"].tolist(), plan[kind]["peers"].tolist()
            assert places == sorted(set(places)), f"{where}, {kind}"
            ids = plan[moved]["ids"][places].tolist()
            assert dict(zip(ids, peers, strict=True)) == planned[kind], f"{where}, {kind}"


def assert_lookups(plans: IterationColumns, by_worker: list[dict], reference: ReferenceEngine) -> None:
    """By table, the rows that a worker's samples use; replicated ones that others use are none of them."""
    lookups, hits = plans.table_counts[:, 5], plans.table_counts[:, 6]
    for plan, counts in zip(by_worker, lookups.T.tolist(), strict=True):
        used = set(plan["unique_ids"][plan["inverse"]].tolist())
        assert counts == [sum(reference.table(x) == table for x in used) for table in range(len(counts))]
    assert (lookups.sum(axis=0).tolist(), hits.sum(axis=0).tolist()) == (
        plans.counts[6].tolist(),
        plans.counts[7].tolist(),
    )


def random_stream(
    rng: random.Random, universe: int, samples: int, fields: int, iterations: int, tables: int = 1
) -> list[np.ndarray]:
    """Skewed batches; ids include the extremes, samples repeat ids, some batches are short or empty."""
    ids = [0, 2**64 - 1, *(rng.getrandbits(rng.choice((8, 40, 64))) for _ in range(universe))]
    if tables > 1:
        ids = [x & (2**56 - 1) | rng.randrange(tables) << 56 for x in ids]
    stream = []
    for _ in range(iterations):
        k = rng.choice((samples, samples, samples, samples // 2, 1, 0))
        batch = [[ids[int(len(ids) * rng.random() ** 3)] for _ in range(fields)] for _ in range(k)]
        stream.append(np.array(batch, dtype=np.uint64).reshape(k, fields))
    return stream


def random_assignment(rng: random.Random, samples: int, workers: int) -> np.ndarray:
    active = rng.sample(range(workers), rng.randint(1, workers))
    return np.array([rng.choice(active) for _ in range(samples)], dtype=np.int32)


def overflowing(
    rng: random.Random,
    lookups: int,
    workers: int,
    policy: str,
    sizes: Sequence[int] = (),
    limit: int = 0,
    **options: bool,
) -> tuple[ReferenceEngine, Callable[[], Engine]]:
    """A reference whose caches barely hold the rows of this many lookups, and a function that makes such engines."""
    floor = lookups * max(sizes, default=1)
    capacities = [floor + rng.choice((0, 10, 60)) for _ in range(workers)]
    return (
        ReferenceEngine(capacities, policy, sizes, limit, **options),
        partial(native_engine, capacities, policy, table_sizes=sizes, max_rows=limit, **options),
    )


def run_both(
    engine: Engine,
    reference: ReferenceEngine,
    batch: np.ndarray,
    rng: random.Random,
    limits: list[int] | None = None,
    present: list[int] | None = None,
) -> None:
    n = reference.n
    prepare_both(engine, reference, batch, rng)
    link_costs = [rng.choice((0, 1, 10, 1000)) for _ in range(n)]
    assert engine.costs(np.array(link_costs, dtype=np.int32)).tolist() == reference.costs(link_costs)
    latest = rng.random() < 0.5
    assert engine.affinity(latest=latest).tolist() == reference.affinity(latest=latest)
    fields = sorted(rng.sample(range(batch.shape[1]), rng.randint(1, batch.shape[1])))
    scores = engine.affinity(np.array(fields, np.uint32), latest=latest)
    assert scores.tolist() == reference.affinity(fields, latest=latest)
    assert engine.room_needed().tolist() == reference.room_needed()
    assignment = random_assignment(rng, len(batch), n)
    if present is not None:
        assignment = np.array(present, np.int32)[assignment % len(present)]
    trained, moved = engine.preview(assignment)
    had_replicated = set(reference.replicated)
    plans = engine.commit(assignment, limits)
    by_worker = list(plans)  # once: all columns are made anew whenever somebody asks for a worker's
    assert plans.table_counts[:, :5].sum(axis=0).tolist() == plans.counts[:5].tolist()
    assert_lookups(plans, by_worker, reference)
    sizes = np.array(reference.table_sizes or [1]) @ plans.table_counts.swapaxes(0, 1)  # [9, n]
    pushed = trained if reference.push_trained else sizes[1:3].sum(axis=0)
    if limits is None and not reference.replicated_room:  # a preview knows nothing of what others are to have
        assert moved.tolist() == (sizes[0] + pushed).tolist()
    for plan, counts in zip(by_worker, plans.table_counts[:, 7:].T.tolist(), strict=True):
        trainers = dict(zip(plan["unique_ids"].tolist(), listed(plan["unique_contributors"]), strict=True))
        pulled = dict(zip(plan["pulls"]["ids"].tolist(), plan["pulls"]["versions"].tolist(), strict=True))
        initial = {x for x, version in pulled.items() if version % 2**30 == 0}
        stateless = initial | {x for x in pulled if trainers[x].bit_count() > 1}
        for which, of_tables in zip((stateless, initial), counts, strict=True):
            assert of_tables == [sum(reference.table(x) == table for x in which) for table in range(len(of_tables))]
    used = [set(plan["unique_ids"][plan["inverse"]].tolist()) - had_replicated for plan in by_worker]
    assert trained.tolist() == [sum(map(reference.size, ids)) for ids in used]
    assert_plans(by_worker, reference.commit(assignment.tolist(), limits))
    assert plans.counts[6:].sum(axis=1).tolist() == [reference.lookups, reference.hits]
    assert (engine.iteration, engine.lookups, engine.hits) == (
        reference.iteration,
        reference.lookups,
        reference.hits,
    )


@pytest.mark.parametrize("policy", ["emark", "reuse", "lru", "lfu"])
@pytest.mark.parametrize("workers", [1, 2, 3, 8, 9, 16, 17, 33, 64])
def test_equals_reference(policy: str, workers: int) -> None:
    rng = random.Random(f"{policy} {workers}")
    for _ in range(4 if workers <= 9 else 2):
        fields = rng.choice((1, 3, 8))
        samples = rng.choice((2, 12))
        floor = samples * fields  # always enough, and small enough that most caches overflow
        reference = ReferenceEngine([floor + rng.choice((0, 1, 10, 60)) for _ in range(workers)], policy)
        engine = native_engine([cache.capacity for cache in reference.caches], policy)
        for batch in random_stream(rng, rng.choice((20, 150, 400)), samples, fields, 50):
            run_both(engine, reference, batch, rng)
            if rng.random() < 0.05:
                assert_flush(engine, reference)
            if rng.random() < 0.05:
                snapshot = engine.snapshot()
                engine = native_engine([cache.capacity for cache in reference.caches], policy)
                engine.restore(snapshot)
        assert_flush(engine, reference)


def assert_flush(engine: Engine, reference: ReferenceEngine) -> None:
    for j, (plan, expected) in enumerate(zip(engine.flush(), reference.flush(), strict=True)):
        assert plan["iteration"] == expected["iteration"]
        for kind in ("rows", "gradients"):
            assert_columns(plan[kind], expected[kind], kind == "gradients", f"flush, worker {j}, {kind}")


def held_in(cache: CacheColumns) -> list[tuple[int, int]]:
    """Slots and ids of one worker's copies, in order."""
    return sorted(zip(cache["slots"].tolist(), cache["ids"].tolist(), strict=True))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("workers", [1, 3, 9])
def test_equals_reference_with_several_tables(policy: str, workers: int) -> None:
    rng = random.Random(f"sizes {policy} {workers}")
    for sizes in ([1, 7, 2], [65535, 3, 40000], [4, 4], [1 + table % 99 for table in range(256)]):
        samples = 12
        reference = ReferenceEngine(
            [samples * 3 * max(sizes) + rng.choice((0, 1, 60, max(sizes))) for _ in range(workers)], policy, sizes
        )
        capacities = [cache.capacity for cache in reference.caches]
        engine = Engine(capacities, policy, table_sizes=sizes)
        for batch in random_stream(rng, 150, samples, 3, 60, len(sizes)):
            run_both(engine, reference, batch, rng)
            if rng.random() < 0.1:
                assert_flush(engine, reference)
                snapshot = engine.snapshot()
                engine = Engine(capacities, policy, table_sizes=sizes)
                engine.restore(snapshot)
        for cache, columns_of in zip(reference.caches, engine.contents(), strict=True):
            assert held_in(columns_of) == sorted((copy.slot, x) for x, copy in cache.copies.items())
        assert engine.stats()["cached_rows"].tolist() == [len(cache.copies) for cache in reference.caches]


@pytest.mark.parametrize("policy", ["emark", "reuse", "lru", "lfu", "static"])
def test_long_run_on_tiny_caches(policy: str) -> None:
    rng = random.Random(policy)
    reference = ReferenceEngine([9, 12, 7], policy)
    engine = Engine([9, 12, 7], policy)
    refused = 0
    for batch in random_stream(rng, 60, 6, 3, 1500):
        try:
            run_both(engine, reference, batch, rng)
        except CacheTooSmall:
            refused += 1  # and nothing has changed: the next iterations still agree
    assert 0 < refused < 1000


def test_frequency_is_counted_to_its_limit() -> None:
    rng = random.Random(7)
    reference = ReferenceEngine([4], "lfu")
    engine = Engine([4], "lfu")
    for t in range(1100):
        batch = np.array([[1], [2 if t < 1060 or t % 2 else 3]], dtype=np.uint64)
        run_both(engine, reference, batch, rng)
    for x in range(10, 20):
        run_both(engine, reference, np.array([[x], [x + 1]], dtype=np.uint64), rng)


@pytest.mark.parametrize("sizes", [(), (3, 1)])
def test_the_hot_set_is_chosen_after_the_profile_and_kept(sizes: tuple[int, ...]) -> None:
    rng = random.Random(9)
    capacities = [90, 80]
    reference = ReferenceEngine(capacities, "static", table_sizes=sizes)
    engine = Engine(capacities, "static", table_sizes=sizes)
    for t, batch in enumerate(random_stream(rng, 300, 12, 2, 180, len(sizes))):
        run_both(engine, reference, batch, rng)
        if t in (50, PROFILE - 1, 140):
            snapshot = engine.snapshot()
            engine = Engine(capacities, "static", table_sizes=sizes)
            engine.restore(snapshot)
    assert reference.hot
    kept = [sum(x in reference.hot for x in cache.copies) / len(cache.copies) for cache in reference.caches]
    assert min(kept) > 0.5


@pytest.mark.parametrize(("workers", "sizes"), [(3, ()), (16, (1, 7, 2))])
@pytest.mark.parametrize("policy", POLICIES)
def test_equals_reference_when_rows_leave_a_full_table(workers: int, policy: str, sizes: tuple[int, ...]) -> None:
    """Limits from one batch, where rows of the iteration before leave, to one that few batches reach."""
    rng = random.Random(f"limit {policy} {workers} {sizes}")
    for spare in (0, 60):
        samples = 12
        batches = random_stream(rng, 300, samples, 3, PROFILE + 10 if policy == "static" else 40, len(sizes))
        limit = max(len(np.unique(batch)) for batch in batches) + spare
        reference, new_engine = overflowing(rng, samples * 3, workers, policy, sizes, limit)
        engine = new_engine()
        for batch in batches:
            run_both(engine, reference, batch, rng)
            assert engine.stats()["ids"] == sum(row.version > 0 for row in reference.rows.values()) <= limit
            if rng.random() < 0.05:
                assert_flush(engine, reference)
            if rng.random() < 0.05:
                snapshot = engine.snapshot()
                engine = new_engine()
                engine.restore(snapshot)
        assert reference.life > 0
        for cache, columns_of in zip(reference.caches, engine.contents(), strict=True):
            assert held_in(columns_of) == sorted((copy.slot, x) for x, copy in cache.copies.items())


@pytest.mark.parametrize(
    ("workers", "policy", "sizes"),
    [
        (workers, policy, ((), (1, 7, 2))[(i + j) % 2])  # any two of the three together
        for i, workers in enumerate((1, 3, 17))
        for j, policy in enumerate(POLICIES)
    ],
)
@pytest.mark.parametrize("way", ["push_trained", "uncached"])
def test_equals_reference_when_all_that_is_trained_is_pushed(
    workers: int, policy: str, sizes: tuple[int, ...], way: str
) -> None:
    """Caches that overflow, tables with and without a limit; a snapshot after every flush. Without caches, no hits."""
    rng = random.Random(f"push {workers} {policy} {sizes}")
    for limited in (False, True):
        samples = 12
        batches = random_stream(rng, 200, samples, 3, 60, len(sizes))
        limit = max(len(np.unique(batch)) for batch in batches) + 10 if limited else 0
        reference, new_engine = overflowing(rng, samples * 3, workers, policy, sizes, limit, **{way: True})
        engine = new_engine()
        for batch in batches:
            run_both(engine, reference, batch, rng)
            assert way != "uncached" or engine.hits == 0
            assert not any(row.kind in ("owned", "split") for row in reference.rows.values())
            if rng.random() < 0.15:
                assert_flush(engine, reference)
                snapshot = engine.snapshot()
                engine = new_engine()
                engine.restore(snapshot)


@pytest.mark.parametrize(
    ("workers", "policy", "lookahead"),
    [
        (workers, ("emark", "lru")[(i + j) % 2], lookahead)  # any two of the three together
        for i, workers in enumerate((1, 3, 17))
        for j, lookahead in enumerate((0, 1, 5, 31))
    ],
)
def test_equals_reference_when_rows_are_pushed_ahead(workers: int, policy: str, lookahead: int) -> None:
    """Limits from nothing to everything; a flush in between leaves nothing that waits."""
    rng = random.Random(f"ahead {workers} {policy} {lookahead}")
    ahead = 0
    for universe in (60, 300):
        samples, fields = 12, 3
        batches = random_stream(rng, universe, samples, fields, 70)
        reference, new_engine = overflowing(rng, samples * fields, workers, policy, flush_ahead=True)
        engine = new_engine()
        known = 0
        for t, batch in enumerate(batches):
            for later in range(max(known, t) + 1, min(t + lookahead + 1, len(batches))):
                engine.look_ahead(np.unique(batches[later]), later)
                reference.look_ahead(np.unique(batches[later]).tolist(), later)
                known = later
            run_both(engine, reference, batch, rng, [rng.choice((0, 1, 3, 10, 1000)) for _ in range(workers)])
            trained = set(reference.trained)
            ahead += any(x not in trained and row.version and row.kind == "clean" for x, row in reference.rows.items())
            if rng.random() < 0.05:
                assert_flush(engine, reference)
    assert ahead > 50


def test_what_is_read_first_is_pushed_first() -> None:
    """Six rows wait at one worker, of which later iterations read three; a single read is announced late."""
    engine = Engine([9], "lru", sync=Proactive())

    def pushed(*trained: int, limit: int) -> list[int]:
        engine.prepare(np.array([[x] for x in trained], np.uint64))
        (plan,) = engine.commit(np.zeros(len(trained), np.int32), [limit])
        assert plan["update_rows"]["early"] == len(plan["update_rows"]["ids"])
        return plan["update_rows"]["ids"].tolist()

    engine.look_ahead(np.array([5], np.uint64), 5)
    engine.look_ahead(np.array([3], np.uint64), 6)
    assert pushed(1, 2, 3, 4, 5, 6, limit=9) == []
    assert pushed(7, limit=9) == []  # iteration 0 may still train what it pushes
    engine.look_ahead(np.array([6], np.uint64), 4)
    assert pushed(7, limit=1) == [6]
    assert pushed(7, limit=2) == [3, 5]
    assert pushed(6, limit=1) == [1]
    assert pushed(5, limit=9) == [2, 4, 7]
    assert pushed(8, limit=9) == [6]
    with pytest.raises(ValueError, match="iteration 39 is announced, the next one is 7"):
        engine.look_ahead(np.array([1], np.uint64), 39)
    with pytest.raises(ValueError, match="push_limits has 2 numbers for 1 workers"):
        engine.commit(np.zeros(1, np.int32), [1, 1])


def test_what_is_not_pushed_yet_is_in_no_snapshot() -> None:
    engine = Engine([4], "lru", sync=PushAll())
    engine.prepare(np.array([[1], [2]], np.uint64))
    engine.commit(np.zeros(2, np.int32))
    with pytest.raises(RuntimeError, match="call flush before snapshot"):
        engine.snapshot()
    (flush,) = engine.flush()
    assert flush["rows"]["ids"].tolist() == [1, 2]
    assert engine.snapshot()


def test_a_full_index_stays_as_small_as_its_limit() -> None:
    """A stream of ever new ids; rows that lie past full buckets are found after others have left."""
    rng = np.random.default_rng(0)
    k, limit = 20_000, 200_000
    engine = Engine([k], "lru", max_rows=limit)
    everything = rng.integers(0, 2**64, 80 * k // 2, np.uint64)
    sizes = []
    for iteration in range(80):
        end = (iteration + 1) * k // 2
        engine.prepare(rng.choice(everything[max(0, end - limit) : end], (k, 1)))
        engine.commit(np.zeros(k, np.int32))
        sizes.append(engine.stats()["index_bytes"])
    assert engine.stats()["ids"] == limit
    assert sizes[-1] <= 1.1 * sizes[40]


def test_refuses_a_batch_that_is_larger_than_the_table() -> None:
    engine = Engine([8], "lru", max_rows=2)
    engine.prepare(np.array([[1], [2], [3]], np.uint64))
    with pytest.raises(ValueError, match="the batch has 3 rows, max_rows is 2"):
        engine.commit(np.zeros(3, np.int32))
    engine.prepare(np.array([[1], [2]], np.uint64))
    (plan,) = engine.commit(np.zeros(2, np.int32))
    assert plan["forgotten"].tolist() == []


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("workers", [1, 2, 5, 17])
def test_equals_reference_with_direct_rows(policy: str, workers: int) -> None:
    """Caches that overflow, several tables, rows that are forgotten; a snapshot and a flush now and then."""
    rng = random.Random(f"direct {policy} {workers}")
    for sizes, limited in (([], False), ([3, 1, 2], False), ([], True)):
        samples = 12
        batches = random_stream(rng, 200, samples, 3, 50, max(1, len(sizes)))
        limit = max(len(np.unique(batch)) for batch in batches) + 10 if limited else 0
        reference, new_engine = overflowing(rng, samples * 3, workers, policy, sizes, limit, direct=True)
        engine = new_engine()
        for batch in batches:
            run_both(engine, reference, batch, rng)
            if rng.random() < 0.05:
                assert_flush(engine, reference)
            if rng.random() < 0.05:
                snapshot = engine.snapshot()
                engine = new_engine()
                engine.restore(snapshot)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("workers", [1, 2, 5])
def test_equals_reference_with_replicated_rows(policy: str, workers: int) -> None:
    """Rows join, leave, are forgotten and flushed; some workers may be away; a snapshot goes on as if nothing was."""
    assert_replicated_rows_equal_reference(policy, workers)


def test_equals_reference_with_replicated_rows_and_many_workers() -> None:
    """As with few; by the policy that chooses rows of its own besides."""
    assert_replicated_rows_equal_reference("static", 17)


def assert_replicated_rows_equal_reference(policy: str, workers: int) -> None:
    rng = random.Random(f"replicated {policy} {workers}")
    joined, left = set(), set()
    for sizes, limit in (([], 0), ([3, 1, 2], 0), ([], 60)):
        by = rng.choice((0, 1, 2**workers - 1, rng.randrange(1, 2**workers)))
        present = [j for j in range(workers) if not by or by >> j & 1]
        room = 12 * 3 * max(sizes or [1]) + rng.choice((13, 20, 60))
        options = (policy, sizes, limit)
        replication = {"replicated_room": 12, "replicated_by": by, "seed": rng.getrandbits(64)}
        capacities = [room + rng.choice((0, 5)) for _ in range(workers)]
        reference = ReferenceEngine(capacities, *options, **replication)
        engine = native_engine(capacities, policy, table_sizes=sizes, max_rows=limit, **replication)
        for batch in random_stream(rng, 150, 12, 3, 130, max(1, len(sizes))):
            before = set(reference.replicated)
            run_both(engine, reference, batch, rng, present=present)
            joined |= reference.replicated - before
            left |= before - reference.replicated
            if rng.random() < 0.1:
                assert_flush(engine, reference)
                snapshot = engine.snapshot()
                engine = native_engine(capacities, policy, table_sizes=sizes, max_rows=limit, **replication)
                engine.restore(snapshot)
        assert_flush(engine, reference)
        assert not any(len(plan["rows"]["ids"]) for plan in engine.flush())
    assert len(joined) > 10
    assert left


def test_a_snapshot_of_replicated_rows_serves_other_workers() -> None:
    """Workers that then replicate other rows, or none, find clean rows, and lose no hot row."""
    batches = random_stream(random.Random(5), 60, 20, 3, 80)
    assignment = np.arange(20, dtype=np.int32) % 3

    def run(engine: Engine, some: list[np.ndarray]) -> None:
        for batch in some:
            engine.prepare(batch)
            engine.commit(assignment[: len(batch)] % 2)

    engine = Engine([90] * 3, "lru", sync=Replicated(room=20, seed=1))
    run(engine, batches[:60])
    engine.flush()
    snapshot = engine.snapshot()
    for way, replicates in ((Replicated(room=20, workers=[0, 1], seed=1), True), (OnDemand(), False)):
        other = Engine([90] * 3, "lru", sync=way)
        other.restore(snapshot)
        for batch in batches[60:]:
            other.prepare(batch)
            plans = other.commit(assignment[: len(batch)] % 2)
        assert bool(plans.figures.sum()) == replicates
        assert not len(plans[2]["reduced"])
        flushed = [len(plan["rows"]["ids"]) for plan in other.flush()]
        assert flushed[2] == 0


def test_replicated_rows_that_fill_a_cache_are_refused() -> None:
    with pytest.raises(ValueError, match="leave no room in the smallest cache, which has 9"):
        Engine([20, 9], "lru", sync=Replicated(room=9))
    with pytest.raises(ValueError, match="workers that are not there"):
        Engine([20, 9], "lru", sync=Replicated(room=8, workers=[2]))
    engine = Engine([4], "lru", sync=Replicated(room=1))
    engine.prepare(np.arange(5, dtype=np.uint64)[:, None])
    with pytest.raises(CacheTooSmall, match="needs 5"):
        engine.commit(np.zeros(5, np.int32))
