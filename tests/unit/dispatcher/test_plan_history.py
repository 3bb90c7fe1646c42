"""The plans that are kept for observers: bounded in bytes, found by epoch and iteration, and refused by name."""

from __future__ import annotations

import pytest

from esd.dispatcher.service.state.plan_history import KeptPlans, PlanHistory
from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.watched import PlanStage


def plans(epoch: int, iteration: int, stage: PlanStage = PlanStage.ITERATION, size: int = 10) -> KeptPlans:
    return KeptPlans(epoch, iteration, stage, ("edge-0",), (bytes(size),))


def history(*added: KeptPlans, most_bytes: int = 1000) -> PlanHistory:
    made = PlanHistory(most_bytes, "LIMIT")
    for each in added:
        made.add(each)
    return made


def test_the_oldest_plans_are_dropped_beyond_the_limit_and_the_latest_stay() -> None:
    kept = history(*(plans(1, at) for at in range(10)), most_bytes=35)
    assert (kept.size, kept.end) == (30, 10)
    assert kept.get(7).iteration == 7
    with pytest.raises(FailedPrecondition, match=r"too slow: 3 plans .* oldest kept are of iteration 7 .*LIMIT"):
        kept.get(4)
    kept.add(plans(1, 10, size=100))
    assert (kept.size, kept.get(10).iteration) == (100, 10)


def test_plans_are_found_from_the_first_stage_of_an_iteration_on() -> None:
    kept = history(
        plans(1, 0), plans(1, 1), plans(1, 2, PlanStage.CHECKPOINT), plans(1, 2), plans(1, 3),
        plans(2, 2, PlanStage.RELOAD), plans(2, 2), plans(2, 3),
    )  # fmt: skip
    assert [kept.find(1, at) for at in range(5)] == [0, 1, 2, 4, 5], "after iteration 3 the next epoch follows"
    assert kept.find(2, 0) == 5, "an epoch begins at its checkpoint"
    assert kept.find(2, 9) == kept.end


def test_plans_of_an_earlier_dispatcher_are_refused() -> None:
    """A dispatcher that was started again begins with a later epoch, at a checkpoint."""
    assert history().find(1, 4) == 0, "nothing is published yet"
    kept = history(plans(3, 4, PlanStage.RELOAD), plans(3, 4), plans(3, 5))
    assert kept.find(3, 4) == 0
    for epoch, iteration in ((3, 3), (2, 6)):
        with pytest.raises(FailedPrecondition, match=f"iteration {iteration} of epoch {epoch} are not kept"):
            kept.find(epoch, iteration)


def test_the_latest_iteration_is_found_among_flushes() -> None:
    assert history().latest is None
    assert history(plans(1, 0, PlanStage.END)).latest is None
    latest = history(plans(1, 0), plans(1, 1), plans(1, 2, PlanStage.END)).latest
    assert latest is not None
    assert latest.iteration == 1
