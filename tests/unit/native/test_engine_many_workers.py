"""The engine for more than 64 workers, whose sets of workers have two words, against the plain Python reference."""

from __future__ import annotations

import random
from functools import partial

import numpy as np
import pytest

from esd.native.engines import engine_of
from tests.support.worker_sets import listed
from tests.unit.native.engine_pairs import native_engine
from tests.unit.native.reference_engine import ReferenceEngine
from tests.unit.native.test_engine_reference import assert_flush, random_stream, run_both

WAYS = {
    "on-demand": {},
    "push-all": {"push_trained": True},
    "uncached": {"uncached": True},
    "proactive": {"flush_ahead": True},
    "direct": {"direct": True},
    "replicated": {"replicated_room": 12},
}
POLICIES = ("emark", "lru", "lfu", "static", "reuse", "emark-size")
WORKERS = (65, 80, 128)


@pytest.mark.parametrize(
    ("way", "workers", "policy"),
    [
        (way, workers, POLICIES[(i + 2 * j) % len(POLICIES)])
        for i, way in enumerate(WAYS)
        for j, workers in enumerate(WORKERS)
    ],
)
def test_equals_reference(way: str, workers: int, policy: str) -> None:
    """Fewer samples than workers and more, with tables of several row sizes; a flush and a snapshot now and then."""
    rng = random.Random(f"{way} {workers} {policy}")
    for sizes, samples in (((), 12), ((1, 3), 2 * workers)):
        options = dict(WAYS[way])
        present = list(range(workers))
        if way == "replicated" and sizes:  # by some of the workers, in both words
            present = [0, 5, 63, 64, workers - 1]
            options["replicated_by"] = sum(1 << slot for slot in present)
        room = samples * 2 * max(sizes, default=1) + options.get("replicated_room", 0)
        capacities = [room + rng.choice((0, 10, 60)) for _ in range(workers)]
        reference = ReferenceEngine(capacities, policy, sizes, **options)
        new_engine = partial(native_engine, capacities, policy, table_sizes=sizes, **options)
        engine = new_engine()
        batches = random_stream(rng, 3 * workers, samples, 2, 20, max(1, len(sizes)))
        for t, batch in enumerate(batches):
            limits = None
            if way == "proactive":
                limits = [rng.choice((0, 3, 1000)) for _ in range(workers)]
                for announced, later in enumerate(batches[t + 1 : t + 2], t + 1):
                    engine.look_ahead(np.unique(later), announced)
                    reference.look_ahead(np.unique(later).tolist(), announced)
            run_both(engine, reference, batch, rng, limits, present if way == "replicated" else None)
            if way != "proactive" and rng.random() < 0.2:
                assert_flush(engine, reference)
                snapshot = engine.snapshot()
                engine = new_engine()
                engine.restore(snapshot)
        assert any(row.version for row in reference.rows.values())
        assert_flush(engine, reference)


@pytest.mark.parametrize("workers", [64, 65, 128])
def test_the_engine_for_a_number_of_workers_takes_no_more_than_its_sets_hold(workers: int) -> None:
    module = engine_of(workers)
    most = 64 if workers <= 64 else 128
    module.Engine([1] * most, "lru")
    with pytest.raises(ValueError, match=rf"{most + 1} workers, there must be 1\.\.{most}"):
        module.Engine([1] * (most + 1), "lru")


@pytest.mark.parametrize(("before", "after"), [(3, 80), (80, 3), (128, 64)])
def test_a_snapshot_serves_the_engine_for_another_number_of_workers(before: int, after: int) -> None:
    """Rows, with their versions and trainings, continue as in an engine of the same kind; the caches begin empty."""
    rng = random.Random(f"{before} {after}")
    batches = random_stream(rng, 300, 30, 3, 40)
    first = native_engine([200] * before, "lru", max_rows=250)
    for batch in batches[:20]:
        first.prepare(batch)
        first.commit(np.array([rng.randrange(before) for _ in batch], np.int32))
    first.flush()
    snapshot = first.snapshot()
    same, other = (native_engine([200] * n, "lru", max_rows=250) for n in (before, after))
    with pytest.raises(ValueError, match=f"of {before} workers with other caches"):
        other.restore(snapshot)
    forgotten = 0
    for engine in (same, other):
        engine.restore(snapshot, warm=False)
    for batch in batches[20:]:
        plans = []
        for engine in (same, other):
            engine.prepare(batch)
            plans.append(next(iter(engine.commit(np.zeros(len(batch), np.int32)))))
        for column in ("unique_ids", "unique_slots", "unique_versions", "forgotten"):
            assert listed(plans[0][column]) == listed(plans[1][column])
        assert listed(plans[0]["pulls"]["ids"]) == listed(plans[1]["pulls"]["ids"])
        forgotten += len(plans[0]["forgotten"])
    assert forgotten > 0
