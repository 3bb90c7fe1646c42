"""Rows that no iteration trains for their time to live are forgotten, as the reference forgets them."""

from __future__ import annotations

import random
from functools import partial

import numpy as np
import pytest

from esd.native.engine import Engine
from tests.unit.native.engine_pairs import native_engine
from tests.unit.native.reference_engine import ReferenceEngine
from tests.unit.native.test_engine_reference import assert_flush, random_stream, run_both

WAYS = [{}, {"push_trained": True}, {"uncached": True}, {"direct": True}, {"replicated_room": 12, "seed": 5}]


@pytest.mark.parametrize("policy", ["emark", "lru", "static"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: next(iter(way), "on demand"))
def test_equals_reference(policy: str, way: dict) -> None:
    """Caches that overflow, one table or three, with a limit of rows or without; a snapshot now and then."""
    rng = random.Random(f"ttl {policy} {way}")
    expired = came_back = 0
    for sizes, ttls, limited in (([], [3], False), ([3, 1, 2], [2, 0, 5], False), ([], [4], True), ([], [1], False)):
        samples, workers = 12, rng.choice((1, 2, 5))
        batches = random_stream(rng, 200, samples, 3, 60, max(1, len(sizes)))
        limit = max(len(np.unique(batch)) for batch in batches) + 10 if limited else 0
        room = samples * 3 * max(sizes, default=1) + way.get("replicated_room", 0)
        capacities = [room + rng.choice((0, 10, 60)) for _ in range(workers)]
        reference = ReferenceEngine(capacities, policy, sizes, limit, row_ttls=ttls, **way)
        new_engine = partial(native_engine, capacities, policy, table_sizes=sizes, max_rows=limit, row_ttls=ttls, **way)
        engine = new_engine()
        for batch in batches:
            came_back += sum(row.version == 1 and row.life > 0 for row in reference.rows.values())
            before = len(reference.rows)
            run_both(engine, reference, batch, rng, present=list(range(workers)) if "seed" in way else None)
            expired += before > len(reference.rows)
            if rng.random() < 0.1:
                assert_flush(engine, reference)
                snapshot = engine.snapshot()
                engine = new_engine()
                engine.restore(snapshot)
    assert expired > 10
    assert came_back > 10


def test_counts_the_rows_whose_time_is_over_apart_from_those_without_room() -> None:
    engine = Engine([8], "lru", max_rows=3, row_ttls=[2])

    def left(*trained: int) -> tuple[list[int], int]:
        engine.prepare(np.array([[x] for x in trained], np.uint64))
        columns = engine.commit(np.zeros(len(trained), np.int32))
        return columns[0]["forgotten"].tolist(), columns.expired

    assert left(1, 2, 3) == ([], 0)
    assert left(2) == ([], 0)
    assert left(4) == ([1, 3], 2)  # trained two iterations ago, as 1 was; 2 a single one
    assert left(5, 6, 7) == ([2, 4], 1)


def test_memory_follows_the_rows_that_live() -> None:
    """A stream of ever new ids, and one id of every iteration, whose records must not pile up."""
    engine = Engine([4096], "lru", row_ttls=[20])
    sizes = []
    for iteration in range(600):
        ids = np.arange(iteration * 255, iteration * 255 + 256, dtype=np.uint64)
        ids[0] = 2**40
        engine.prepare(ids.reshape(-1, 1))
        engine.commit(np.zeros(256, np.int32))
        sizes.append(engine.stats()["index_bytes"])
    assert engine.stats()["ids"] == 20 * 255 + 1
    assert sizes[-1] <= 1.1 * sizes[100]


def test_refuses_what_it_cannot_keep() -> None:
    with pytest.raises(ValueError, match="2 row ttls for 1 tables"):
        Engine([8], "lru", row_ttls=[2, 3])
    with pytest.raises(ValueError, match="must know them all: window must be 0"):
        Engine([8], "lru", row_ttls=[2], window=4)
    releasing = Engine([2], "lru", window=1)
    for x in range(9):
        releasing.prepare(np.array([[x]], np.uint64))
        releasing.commit(np.zeros(1, np.int32))
    releasing.flush()
    with pytest.raises(ValueError, match=r"without a row ttl \(--row-ttl\)"):
        Engine([2], "lru", row_ttls=[5]).restore(releasing.snapshot())
