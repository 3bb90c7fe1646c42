"""The native engine beside its reference: the same way to synchronise, and the same batches."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from esd.native.engine import Engine, Way
from esd.native.engines import engine_of
from tests.unit.native.reference_engine import ReferenceEngine


def way_of(
    workers: int,
    *,
    push_trained: bool = False,
    uncached: bool = False,
    flush_ahead: bool = False,
    replicated_room: int = 0,
    replicated_by: int = 0,
    seed: int = 0,
    direct: bool = False,
) -> Way:
    """The native engine's way to synchronise by the options of the reference."""
    ways = engine_of(workers)
    if replicated_room:
        slots = [slot for slot in range(workers) if replicated_by >> slot & 1]
        return ways.Replicated(room=replicated_room, workers=slots, seed=seed)
    if uncached:
        return ways.Uncached()
    return ways.PushAll() if push_trained else ways.Proactive() if flush_ahead else ways.OnDemand(direct=direct)


def native_engine(
    capacities: Sequence[int],
    policy: str,
    *,
    table_sizes: Sequence[int] = (),
    max_rows: int = 0,
    row_ttls: Sequence[int] = (),
    **way: int,
) -> Engine:
    """The native engine for the workers with these caches, and for a way by the options of the reference."""
    return engine_of(len(capacities)).Engine(
        capacities,
        policy,
        table_sizes=table_sizes,
        max_rows=max_rows,
        row_ttls=row_ttls,
        sync=way_of(len(capacities), **way),
    )


def prepare_both(engine: Engine, reference: ReferenceEngine, batch: np.ndarray, rng: random.Random) -> None:
    """Prepares a batch as it is, or with lists: ids of its samples are left out, and said twice."""
    if rng.random() < 0.5:
        engine.prepare(batch)
        reference.prepare(batch.tolist())
        return
    lengths = np.array([rng.choice((0, 1, 1, 2, 3)) for _ in range(batch.size)], np.uint32).reshape(batch.shape)
    # A field's further ids are those of the next fields, so that ids repeat within a list and across fields.
    lists = [
        [int(sample[(f + rng.choice((0, 0, i))) % len(sample)]) for f, count in enumerate(counts) for i in range(count)]
        for sample, counts in zip(batch, lengths.tolist(), strict=True)
    ]
    engine.prepare(np.array([x for sample in lists for x in sample], np.uint64), lengths)
    reference.prepare(lists, lengths.tolist())
