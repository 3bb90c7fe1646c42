"""Traces worked out by hand: which rows move, and when."""

from __future__ import annotations

import numpy as np
import pytest

from esd.native.engine import Engine, OnDemand

KINDS = ("update_rows", "update_gradients", "evict_rows", "evict_gradients", "drops", "pulls")


def train(engine: Engine, *workloads: list[list[int]]) -> list[dict[str, list[int]]]:
    """One iteration, given each worker's samples; the ids that each worker moves, by kind, empty kinds left out."""
    samples = [sample for workload in workloads for sample in workload]
    assignment = [worker for worker, workload in enumerate(workloads) for _ in workload]
    engine.prepare(np.array(samples, dtype=np.uint64))
    plans = engine.commit(np.array(assignment, dtype=np.int32))
    return [{kind: plan[kind]["ids"].tolist() for kind in KINDS if len(plan[kind]["ids"])} for plan in plans]


@pytest.mark.parametrize("policy", ["emark", "lru"])
def test_esd_figure_2(policy: str) -> None:
    """ESD section 3.2: misses of x8..x11 and an update push of x9 in I2, an evict push of x5 in I3."""
    engine = Engine([3, 3, 3], policy)
    train(engine, [[1, 5]], [[2, 3]], [[4, 9]])
    second = train(engine, [[1, 8]], [[9, 10]], [[4, 11]])
    assert second == [
        {"pulls": [8]},
        # x2 and x3 are as old, and only one has to leave. The pull of x9 has to wait for its push, so it comes last.
        {"evict_rows": [2], "pulls": [10, 9]},
        {"update_rows": [9], "pulls": [11]},
    ]
    third = train(engine, [[1, 12]], [[9, 10]], [[4, 11]])
    assert third == [{"evict_rows": [5], "pulls": [12]}, {}, {}]


def test_herald_figure_5() -> None:
    """Herald section 3.1: a dispatch that follows the caches moves nothing, the opposite one moves every row."""
    batch = np.array([[1, 2], [3, 4]], dtype=np.uint64)
    for swapped, expected in (
        (False, [{}, {}]),
        (True, [{"update_rows": [1, 2], "pulls": [3, 4]}, {"update_rows": [3, 4], "pulls": [1, 2]}]),
    ):
        engine = Engine([8, 8], "lru")
        train(engine, [[1, 2]], [[3, 4]])
        engine.prepare(batch)
        assert engine.affinity().tolist() == [[2, 0], [0, 2]]
        assert engine.costs(np.array([1, 10], dtype=np.int32)).tolist() == [[0, 22], [22, 0]]
        workloads = ([[3, 4]], [[1, 2]]) if swapped else ([[1, 2]], [[3, 4]])
        assert train(engine, *workloads) == expected


def test_a_row_goes_straight_to_its_only_reader() -> None:
    """Worker 0 owns rows 1 to 4: worker 2 reads the first, two others the second, itself and one the third."""
    engine = Engine([9, 9, 9], "lru", sync=OnDemand(direct=True))
    engine.prepare(np.array([[1], [2], [3], [4]], np.uint64))
    engine.commit(np.zeros(4, np.int32))
    engine.prepare(np.array([[1], [2], [2], [3], [3]], np.uint64))
    plans = engine.commit(np.array([2, 1, 2, 0, 1], np.int32))
    pushes, pulls = plans[0]["direct_pushes"], plans[2]["direct_pulls"]
    assert plans[0]["update_rows"]["ids"].tolist() == [1, 2, 3]
    assert (pushes["places"].tolist(), pushes["peers"].tolist()) == ([0], [2])
    assert plans[2]["pulls"]["ids"].tolist() == [1, 2]
    assert (pulls["places"].tolist(), pulls["peers"].tolist()) == ([0], [0])
    assert not len(plans[1]["direct_pulls"]["places"])
    assert plans.direct.tolist() == [[1, 0, 0]]
    assert [len(plan["rows"]["ids"]) for plan in engine.flush()] == [1, 0, 1]


def test_split_row() -> None:
    """Two workers train row 7: each holds a partial gradient, and both push when a worker needs the row."""
    engine = Engine([4, 4, 4], "emark")
    train(engine, [[7]], [[7]], [[1]])
    train(engine, [[2]], [[3]], [[1]])
    engine.prepare(np.array([[7], [1]], dtype=np.uint64))
    assert engine.affinity().tolist() == [[1, 1, 0], [0, 0, 1]]
    assert engine.costs(np.array([1, 10, 100], dtype=np.int32)).tolist() == [[1, 10, 100], [101, 110, 0]]
    plans = engine.commit(np.array([2, 2], dtype=np.int32))
    for worker in (0, 1):
        push = plans[worker]["update_gradients"]
        assert push["ids"].tolist() == [7]
        assert push["versions"].tolist() == [1]  # the version that the sum makes
        assert push["contributors"].tolist() == [0b011]
        assert push["steps"].tolist() == [1]  # trained by iteration 0
        assert push["early"] == 1  # iteration 1 does not touch row 7
    assert plans[2]["pulls"]["ids"].tolist() == [7]
    assert plans[2]["pulls"]["versions"].tolist() == [1]
    assert (engine.lookups, engine.hits) == (2, 1)


def test_a_contributor_of_a_split_row_reads_it_like_anybody_else() -> None:
    engine = Engine([4, 4], "emark")
    train(engine, [[7]], [[7]])
    assert train(engine, [[7]], [[1]]) == [
        {"update_gradients": [7], "pulls": [7]},
        {"update_gradients": [7], "pulls": [1]},
    ]
    assert train(engine, [[7]], [[1]]) == [{}, {}]


def test_partial_gradient_is_evicted() -> None:
    """The row stays split until its last contributor has pushed; both pushes name all contributors."""
    engine = Engine([1, 1, 3], "lru")
    train(engine, [[7]], [[7]], [[1]])
    engine.prepare(np.array([[2], [1]], dtype=np.uint64))
    first = engine.commit(np.array([0, 2], dtype=np.int32))
    assert first[0]["evict_gradients"]["ids"].tolist() == [7]
    assert first[0]["evict_gradients"]["contributors"].tolist() == [0b011]
    engine.prepare(np.array([[2], [7]], dtype=np.uint64))
    assert engine.affinity().tolist() == [[1, 0, 0], [0, 1, 0]]
    second = engine.commit(np.array([0, 2], dtype=np.int32))
    assert second[0]["update_gradients"]["ids"].tolist() == []
    assert second[1]["update_gradients"]["ids"].tolist() == [7]
    assert second[1]["update_gradients"]["contributors"].tolist() == [0b011]
    assert second[1]["update_gradients"]["steps"].tolist() == [1]


def test_evicted_row_comes_back() -> None:
    engine = Engine([1], "emark")
    assert train(engine, [[1]]) == [{"pulls": [1]}]
    assert train(engine, [[2]]) == [{"evict_rows": [1], "pulls": [2]}]
    engine.prepare(np.array([[1]], dtype=np.uint64))
    (plan,) = engine.commit(np.array([0], dtype=np.int32))
    assert plan["pulls"]["versions"].tolist() == [1]
    assert plan["unique_versions"].tolist() == [1]


def test_emark_drops_outdated_copies_first() -> None:
    """Row 1 is older at worker 0, but row 2 was trained elsewhere since: it leaves, for free."""
    engine = Engine([2, 4], "emark")
    train(engine, [[1]], [[9]])
    train(engine, [[2]], [[9]])
    train(engine, [[2]], [[9]])
    assert train(engine, [[3]], [[2]]) == [
        {"update_rows": [2], "drops": [2], "pulls": [3]},
        {"pulls": [2]},
    ]


def test_emark_prefers_the_older_mark_to_the_lower_frequency() -> None:
    engine = Engine([3], "emark")
    for ids in ([1], [1], [1], [2], [3]):
        train(engine, [ids])
    # All marks are 1: the target rises, the least frequent and oldest copy leaves, row 4 is marked 2.
    assert train(engine, [[4]]) == [{"evict_rows": [2], "pulls": [4]}]
    # Marks: row 1 (frequency 3) and row 3 (frequency 1) have 1, row 4 (frequency 1) has 2.
    assert train(engine, [[5]]) == [{"evict_rows": [3], "pulls": [5]}]
    assert train(engine, [[6]]) == [{"evict_rows": [1], "pulls": [6]}]


def test_early_pulls_stay_off_the_previous_iterations_slots() -> None:
    """Row 3 is new, but its slot holds a row which the previous iteration trains, so it has to wait."""
    engine = Engine([2], "lru")
    train(engine, [[1], [2]])
    engine.prepare(np.array([[2], [3]], dtype=np.uint64))
    (plan,) = engine.commit(np.array([0, 0], dtype=np.int32))
    assert plan["evict_rows"]["ids"].tolist() == [1]
    assert plan["evict_rows"]["early"] == 0
    assert plan["pulls"]["ids"].tolist() == [3]
    assert plan["pulls"]["early"] == 0
    engine.prepare(np.array([[3]], dtype=np.uint64))
    engine.commit(np.array([0], dtype=np.int32))
    engine.prepare(np.array([[4], [3]], dtype=np.uint64))
    (plan,) = engine.commit(np.array([0, 0], dtype=np.int32))
    assert plan["evict_rows"]["early"] == 1
    assert plan["pulls"]["early"] == 1


def test_flush_pushes_what_the_parameter_server_lacks() -> None:
    engine = Engine([4, 4], "emark")
    train(engine, [[1], [7]], [[2], [7]])
    plans = engine.flush()
    assert [plan["rows"]["ids"].tolist() for plan in plans] == [[1], [2]]
    assert [plan["gradients"]["ids"].tolist() for plan in plans] == [[7], [7]]
    assert all(plan["iteration"] == 1 for plan in plans)
    assert all(len(plan["rows"]["ids"]) + len(plan["gradients"]["ids"]) == 0 for plan in engine.flush())
    # Row 1 is still the latest at worker 0, row 7 nowhere; both trained it last.
    engine.prepare(np.array([[1], [7]], dtype=np.uint64))
    assert engine.affinity().tolist() == [[1, 0], [1, 1]]
    assert engine.costs(np.array([1, 10], dtype=np.int32)).tolist() == [[0, 10], [1, 10]]
    assert train(engine, [[1], [7]], [[2]]) == [{"pulls": [7]}, {}]
