"""Bad calls, extreme shapes and ids, snapshots, permutations, memory."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from esd.native.engine import BatchIds, CacheTooSmall, Engine, OnDemand, Proactive
from esd.services.domain.ids import distinct_values

SECOND_TABLE = 1 << 56  # the first id of it


def ids(*samples: list[int]) -> np.ndarray:
    return np.array(samples, dtype=np.uint64)


def workers(*assignment: int) -> np.ndarray:
    return np.array(assignment, dtype=np.int32)


def plans_as_lists(plans: list[dict]) -> list:
    return [
        {name: plans_as_lists([value])[0] if isinstance(value, dict) else np.asarray(value).tolist()}
        for plan in plans
        for name, value in plan.items()
    ]


@pytest.mark.parametrize(
    ("cache_rows", "policy", "message"),
    [
        ([], "lru", "0 workers"),
        ([1] * 65, "lru", "65 workers"),
        ([4, 0], "lru", "worker 1 is 0"),
        ([4, -3], "lru", "worker 1 is -3"),
        ([4], "fifo", "'fifo' is unknown"),
    ],
)
def test_refuses_bad_settings(cache_rows: list[int], policy: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Engine(cache_rows, policy)


def test_refuses_calls_without_a_batch() -> None:
    engine = Engine([4], "lru")
    for call in (
        engine.affinity,
        lambda: engine.costs(workers(1)),
        lambda: engine.commit(workers()),
    ):
        with pytest.raises(RuntimeError, match="no batch is prepared"):
            call()
    engine.prepare(ids([1]))
    engine.commit(workers(0))
    with pytest.raises(RuntimeError, match="no batch is prepared"):
        engine.commit(workers(0))


def test_refuses_bad_assignments_and_costs() -> None:
    engine = Engine([4, 4], "lru")
    engine.prepare(ids([1], [2]))
    for assignment, message in (
        (workers(0), "1 elements for 2 samples"),
        (workers(0, 2), "sample 1 is assigned to worker 2"),
        (workers(-1, 0), "sample 0 is assigned to worker -1"),
    ):
        with pytest.raises(ValueError, match=message):
            engine.commit(assignment)
    for link_costs, message in (
        (workers(1), "1 elements for 2 workers"),
        (workers(1, -1), "negative"),
        (workers(1, 2**30), "too large for a sample whose rows have size 1"),
    ):
        with pytest.raises(ValueError, match=message):
            engine.costs(link_costs)
    with pytest.raises(TypeError):
        engine.prepare(np.array([[1]], dtype=np.int64))
    assert len(engine.commit(workers(0, 1))) == 2  # still prepared


def test_cache_too_small_changes_nothing() -> None:
    engine = Engine([2, 3], "emark")
    engine.prepare(ids([1, 2], [3, 4]))
    engine.commit(workers(0, 1))
    before = engine.snapshot()
    batch = ids([5, 6], [7, 6], [1, 2])
    engine.prepare(batch)
    message = "worker 0 caches 2 rows, iteration 1 needs 3: .*--cache-rows or --cache-ratio"
    with pytest.raises(CacheTooSmall, match=message):
        engine.commit(workers(0, 0, 1))
    assert issubclass(CacheTooSmall, ValueError)
    plans = engine.commit(workers(1, 1, 0))
    other = Engine([2, 3], "emark")
    other.restore(before)
    other.prepare(batch)
    assert plans_as_lists(other.commit(workers(1, 1, 0))) == plans_as_lists(plans)


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (4, 0)])
def test_nothing_to_train(shape: tuple[int, int]) -> None:
    engine = Engine([2, 2], "lfu")
    engine.prepare(np.zeros(shape, dtype=np.uint64))
    assert engine.distinct == 0
    assert engine.costs(workers(1, 2)).tolist() == [[0, 0]] * shape[0]
    assert engine.affinity().shape == (shape[0], 2)
    plans = engine.commit(np.arange(shape[0], dtype=np.int32) % 2)
    assert [len(plan["positions"]) for plan in plans] == [shape[0] // 2] * 2
    assert all(len(plan["inverse"]) == shape[0] // 2 * shape[1] for plan in plans)
    assert engine.iteration == 1


def test_extreme_and_repeated_ids() -> None:
    engine = Engine([8], "lru")
    top = 2**64 - 1
    engine.prepare(ids([0, top, 0], [top, top, 1]))
    assert engine.distinct == 3
    assert engine.costs(workers(5)).tolist() == [[10], [10]]
    (plan,) = engine.commit(workers(0, 0))
    assert plan["unique_ids"].tolist() == [0, 1, top]
    assert plan["inverse"].tolist() == [0, 2, 0, 2, 2, 1]


def test_many_fields_count_exactly() -> None:
    """More ids per sample than a byte counts."""
    engine = Engine([2000] * 3, "lru")
    batch = np.arange(1200, dtype=np.uint64).reshape(2, 600)
    engine.prepare(batch)
    engine.commit(workers(0, 2))
    engine.prepare(batch)
    assert engine.affinity().tolist() == [[600, 0, 0], [0, 0, 600]]
    assert engine.costs(workers(1, 10, 1000)).tolist() == [[0, 6600, 600600], [600600, 606000, 0]]


def random_iterations(engine: Engine, rng: np.random.Generator, count: int, universe: int) -> list:
    plans = []
    for _ in range(count):
        engine.prepare(rng.integers(0, universe, (16, 5), dtype=np.uint64) ** 3)
        plans.append(plans_as_lists(engine.commit(rng.integers(0, engine.workers, 16, dtype=np.int32))))
    return plans


@pytest.mark.parametrize("policy", ["emark", "lru", "lfu"])
def test_snapshot_continues_identically(policy: str) -> None:
    engine = Engine([100] * 9, policy)
    random_iterations(engine, np.random.default_rng(1), 60, 300)
    engine.prepare(ids([1]))  # no part of the snapshot
    snapshot = engine.snapshot()
    other = Engine([100] * 9, policy)
    other.restore(snapshot)
    assert other.iteration == 60
    assert (other.lookups, other.hits) == (engine.lookups, engine.hits)
    assert random_iterations(other, np.random.default_rng(2), 40, 300) == random_iterations(
        engine, np.random.default_rng(2), 40, 300
    )
    assert other.snapshot() == engine.snapshot()


def test_refuses_wrong_snapshots() -> None:
    engine = Engine([50, 60], "emark")
    random_iterations(engine, np.random.default_rng(1), 10, 100)
    snapshot = engine.snapshot()
    rng = random.Random(3)
    for _ in range(100):
        damaged = bytearray(snapshot)
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        with pytest.raises(ValueError, match="snapshot"):
            engine.restore(bytes(damaged))
    for wrong in (b"", b"x" * 100, snapshot[:-1], snapshot + b"\0"):
        with pytest.raises(ValueError, match="snapshot"):
            engine.restore(wrong)
    with pytest.raises(ValueError, match="cache policy emark, this engine has lru"):
        Engine([50, 60], "lru").restore(snapshot)
    with pytest.raises(ValueError, match="other caches"):
        Engine([50, 61], "emark").restore(snapshot)
    assert engine.snapshot() == snapshot
    with pytest.raises(ValueError, match="other row sizes"):
        Engine([50, 60], "emark", table_sizes=[1, 2]).restore(snapshot)


def by_sample(plan: dict) -> np.ndarray:
    return plan["inverse"].reshape(len(plan["positions"]), 5)


def test_permuted_samples_change_only_positions() -> None:
    rng = np.random.default_rng(5)
    one, two = Engine([90] * 4, "emark"), Engine([90] * 4, "emark")
    for _ in range(30):
        batch = rng.integers(0, 200, (16, 5), dtype=np.uint64)
        assignment = rng.integers(0, 4, 16, dtype=np.int32)
        order = rng.permutation(16)
        one.prepare(batch)
        two.prepare(batch[order])
        link_costs = workers(1, 2, 3, 4)
        assert (one.costs(link_costs)[order] == two.costs(link_costs)).all()
        assert (one.affinity()[order] == two.affinity()).all()
        for plan, permuted in zip(one.commit(assignment), two.commit(assignment[order]), strict=True):
            back = np.argsort(order[permuted["positions"]])
            assert (plan["positions"] == order[permuted["positions"]][back]).all()
            assert (by_sample(plan) == by_sample(permuted)[back]).all()
            for name in plan.keys() - {"positions", "inverse"}:
                assert plans_as_lists([{name: plan[name]}]) == plans_as_lists([{name: permuted[name]}])
    assert one.snapshot() == two.snapshot()


def test_index_finds_every_id_again() -> None:
    """A million ids, enough for the index to grow many times; at most 48 bytes each."""
    engine = Engine([1_100_000], "lru")
    rng = np.random.default_rng(6)
    keys = distinct_values(
        np.concatenate([rng.integers(0, 2**64, 500_000, dtype=np.uint64), np.arange(500_000, dtype=np.uint64)])
    )
    for part in np.array_split(rng.permutation(keys), 10):
        engine.prepare(part.reshape(-1, 1))
        engine.commit(np.zeros(len(part), dtype=np.int32))
    stats = engine.stats()
    assert stats["ids"] == len(keys)
    assert stats["cached_rows"].tolist() == [len(keys)]
    assert stats["index_bytes"] <= 48 * len(keys)
    engine.prepare(keys.reshape(-1, 1))
    (plan,) = engine.commit(np.zeros(len(keys), dtype=np.int32))
    assert (plan["unique_ids"] == keys).all()
    assert (plan["unique_versions"] == 1).all()
    assert len(distinct_values(plan["unique_slots"])) == len(keys)
    assert engine.hits == len(keys)


@pytest.mark.parametrize(("policy", "flush_ahead"), [("emark", False), ("lru", False), ("lfu", False), ("emark", True)])
def test_memory_is_flat_at_a_bounded_number_of_ids(policy: str, flush_ahead: bool) -> None:
    """Also where rows wait to be flushed ahead, and the links never have the time for it."""
    engine = Engine([300, 400], policy, sync=Proactive() if flush_ahead else OnDemand())
    rng = np.random.default_rng(8)

    def run(iterations: int) -> int:
        for _ in range(iterations):
            engine.prepare(rng.zipf(1.3, (32, 4)).astype(np.uint64) % np.uint64(2000))
            engine.commit(rng.integers(0, 2, 32, dtype=np.int32))
        return engine.memory_bytes

    settled = run(4000)
    assert run(8000) <= settled * 1.05


@pytest.mark.parametrize("lists", [False, True])
def test_engines_that_share_the_ids_of_batches_plan_what_others_plan(lists: bool) -> None:
    """Three threads ask for the same ids at the same time; batches differ in how many samples and fields they have."""
    rng = np.random.default_rng(5)
    batches: list[tuple[np.ndarray, np.ndarray | None]] = []
    for _ in range(60):
        k, fields = rng.integers(1, 40), rng.integers(1, 6)
        lengths = rng.integers(0, 4, (k, fields), np.uint32) if lists else None
        shape = (k, fields) if lengths is None else int(lengths.sum())
        batches.append((rng.integers(0, 90, shape, np.uint64), lengths))
    assignments = [
        rng.integers(0, 2, len(given if lengths is None else lengths), np.int32) for given, lengths in batches
    ]
    shared = [BatchIds(*batch) for batch in batches]

    def planned(share: bool) -> list:
        engine, plans = Engine([200, 150], "lru"), []
        for batch, ids_of_all, assignment in zip(batches, shared, assignments, strict=True):
            if share:
                engine.prepare(ids_of_all)
            else:
                engine.prepare(*batch)
            plans += [engine.affinity().tolist(), *plans_as_lists(engine.commit(assignment))]
        return plans

    with ThreadPoolExecutor(3) as threads:
        alike = list(threads.map(planned, [True] * 3))
    assert alike == [planned(False)] * 3


def test_shared_ids_are_refused_as_others_are() -> None:
    with pytest.raises(ValueError, match="lengths sum to 3, there are 2 ids"):
        BatchIds(np.array([1, 2], np.uint64), np.array([[1, 2]], np.uint32))
    engine = Engine([4], "lru", table_sizes=[1, 2])
    engine.prepare(ids([1, SECOND_TABLE]))
    with pytest.raises(ValueError, match="is of table 2, there are 2"):
        engine.prepare(BatchIds(ids([1, 2 * SECOND_TABLE])))
    assert engine.distinct == 2, "the batch before is still prepared"


@pytest.mark.parametrize("size", [0, -1, 65536])
def test_refuses_row_sizes_out_of_range(size: int) -> None:
    with pytest.raises(ValueError, match=f"size of table 1 is {size}, it must be in 1..65535"):
        Engine([4], "lru", table_sizes=[1, size])


def test_refuses_ids_of_tables_that_are_not_there() -> None:
    engine = Engine([40], "lru", table_sizes=[1, 2])
    engine.prepare(ids([1, SECOND_TABLE + 2]))
    with pytest.raises(ValueError, match=f"id {2 * SECOND_TABLE} is of table 2, there are 2"):
        engine.prepare(ids([1, 2 * SECOND_TABLE]))
    with pytest.raises(ValueError, match="257 tables, there may be 256"):
        Engine([40], "lru", table_sizes=[1] * 257)
    assert len(engine.commit(workers(0))) == 1  # the batch before is still prepared


def test_a_big_row_makes_room_for_small_ones() -> None:
    engine = Engine([6], "lru", table_sizes=[4, 1])
    engine.prepare(ids([1, SECOND_TABLE + 2]))
    engine.commit(workers(0))  # 5 of 6 units
    engine.prepare(ids([3, SECOND_TABLE + 4]))
    plans = engine.commit(workers(0))
    assert plans.table_counts.tolist() == [
        [[1], [0], [0], [1], [0], [1], [0], [1], [1]],
        [[1], [0], [0], [0], [0], [1], [0], [1], [1]],
    ]
    (plan,) = plans
    assert plan["evict_rows"]["ids"].tolist() == [1]  # as old as row 2, and enough
    assert plan["pulls"]["ids"].tolist() == [SECOND_TABLE + 4, 3]
    assert plan["pulls"]["early"] == 1  # row 3 takes the slot of row 1, which is in use until iteration 0 ends
    cache = engine.contents()[0]
    slots = dict(zip(cache["ids"].tolist(), cache["slots"].tolist(), strict=True))
    assert slots == {3: 0, SECOND_TABLE + 2: 0, SECOND_TABLE + 4: 1}  # a slot belongs to one table: row 1's is row 3's


@pytest.mark.parametrize(
    ("table_sizes", "shares", "message"),
    [
        ((), [0.5, 0.5], "2 gradient shares for 1 tables"),
        ((1, 2), [0.5], "1 gradient shares for 2 tables"),
        ((), [0.0], "must be above 0"),
        ((), [float("nan")], "must be above 0"),
        ((), [16.5], "at most 16"),
    ],
)
def test_refuses_gradient_shares_that_cannot_be(
    table_sizes: tuple[int, ...], shares: list[float], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Engine([4, 4], "lru", table_sizes=table_sizes, gradient_shares=shares)


@pytest.mark.parametrize(
    ("shares", "message"), [([0.5, 0.5], "2 value shares for 1 tables"), ([1.1], "value share .* at most 1")]
)
def test_refuses_value_shares_that_cannot_be(shares: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Engine([4, 4], "lru", value_shares=shares)
