"""The native engine beside its reference: the same way to synchronise, and the same batches."""

from __future__ import annotations

import random

import numpy as np

from esd.native.engine import Engine, OnDemand, Proactive, PushAll, Replicated, Uncached, Way
from tests.unit.native.reference_engine import ReferenceEngine


def way_of(
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
    if replicated_room:
        return Replicated(room=replicated_room, workers=replicated_by, seed=seed)
    if uncached:
        return Uncached()
    return PushAll() if push_trained else Proactive() if flush_ahead else OnDemand(direct=direct)


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
