"""The native cache book agrees with the one in plain numpy: on accepted plans, on refused ones, and in its words."""

from __future__ import annotations

import random
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from esd.dispatcher.core.planner import Planner
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.plans import GradientTransfers, IterationPlan, Transfers
from esd.services.domain.sync import Replicated
from esd.worker.core.cache_book import CacheBook
from tests.support.simple_clients import job_with
from tests.unit.worker.reference_cache_book import ReferenceCacheBook

CACHE, ITERATIONS = 40, 50


def both(book: CacheBook, reference: ReferenceCacheBook, enter: str, plan: Any) -> bool:
    """Enters a plan in both; whether they took it."""
    refusals = []
    for each in (book, reference):
        try:
            getattr(each, enter)(plan)
            refusals.append("")
        except FailedPrecondition as error:
            refusals.append(str(error))
    assert refusals[0] == refusals[1]
    ids, versions, states = book._slots.contents()
    np.testing.assert_array_equal(states, reference._states)
    np.testing.assert_array_equal(ids, reference._ids)
    np.testing.assert_array_equal(versions, reference._versions)
    assert (book.cached_rows, book.next_iteration) == (reference.cached_rows, reference.next_iteration)
    return not refusals[0]


def spoiled(plan: IterationPlan, rng: random.Random) -> IterationPlan:
    """The plan with one value changed."""
    name = rng.choice([field.name for field in fields(plan)])
    value = getattr(plan, name)
    if isinstance(value, GradientTransfers):
        part = rng.choice(["rows", "contributors"])
        changed = _spoiled_rows(value.rows, rng) if part == "rows" else _spoiled_column(value.contributors, rng)
        return replace(plan, **{name: replace(value, **{part: changed})})
    if isinstance(value, Transfers):
        return replace(plan, **{name: _spoiled_rows(value, rng)})
    if isinstance(value, np.ndarray) and name.startswith("unique"):
        return replace(plan, **{name: _spoiled_column(value, rng)})
    return replace(plan, epoch=plan.epoch + 1)


def _spoiled_rows(rows: Transfers, rng: random.Random) -> Transfers:
    name = rng.choice(["ids", "slots", "versions"])
    return replace(rows, **{name: _spoiled_column(getattr(rows, name), rng)})


def _spoiled_column(column: Any, rng: random.Random) -> Any:
    if not len(column):
        return column
    column = column.copy()
    column[rng.randrange(len(column))] = rng.choice([0, 1, 5, CACHE - 1, CACHE, column[-1]])
    return column


@pytest.mark.parametrize(
    ("seed", "workers", "replicated"),
    [*((seed, 3, replicated) for seed in range(4) for replicated in (0, 8)), (4, 70, 0)],
)
def test_they_agree_on_real_plans_and_on_spoiled_ones(seed: int, workers: int, replicated: int) -> None:
    rng, draws = random.Random(seed), np.random.default_rng(seed)
    job = job_with(workers=workers, fields=3, batch_size=6 * workers, mechanism="random", policy="emark")
    if replicated:
        job = replace(job, sync=Replicated(replicated))
    planner = Planner(job, [1e6] * workers, [CACHE] * workers)
    books = [(CacheBook([CACHE], slot, 0), ReferenceCacheBook(CACHE, slot, 0)) for slot in range(workers)]
    refused = trains_replicated = 0
    samples = job.batch_size
    for iteration in range(ITERATIONS if workers == 3 else 4):
        ids = (draws.zipf(1.2, (samples, 3)) % 120).astype(np.uint64)
        dense, labels = np.zeros((samples, 1), np.float32), np.zeros(samples, np.float32)
        plans = planner.plan(SampleBatch.of_fields(ids, dense, labels)).plans
        for (book, reference), plan in zip(books, plans, strict=True):
            trains_replicated += len(plan.reduced)
            for _ in range(3):
                bad = spoiled(plan, rng)
                if _would_fit(reference, bad):
                    continue
                refused += 1
                assert not both(book, reference, "enter", bad)
            assert both(book, reference, "enter", plan)
        if iteration % 20 == 19 or (workers == 70 and iteration == 2):
            for (book, reference), flush in zip(books, planner.flush(), strict=True):
                both(book, reference, "enter_flush", replace(flush, rows=_spoiled_rows(flush.rows, rng)))
                both(book, reference, "enter_flush", flush)
                assert not book._slots.contents()[2].tolist().count(2)  # nothing is owned any more
    assert refused > ITERATIONS
    assert (trains_replicated > 0) == (replicated > 0)


def _would_fit(reference: ReferenceCacheBook, plan: IterationPlan) -> bool:
    """Whether a plan fits; the book is as it was."""
    copy = ReferenceCacheBook(CACHE, reference._worker, reference._epoch, reference.next_iteration)
    copy._ids, copy._versions, copy._states = (
        reference._ids.copy(),
        reference._versions.copy(),
        reference._states.copy(),
    )
    try:
        copy.enter(plan)
    except FailedPrecondition:
        return False
    return True
