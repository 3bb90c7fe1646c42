"""Plans are kept until their worker confirms them, and no longer."""

import pytest

from dispatcher.service.state.epoch import PlanLog, PublishedPlan


def plan(samples: int) -> PublishedPlan:
    return PublishedPlan(b"", samples)


def test_a_plan_lives_until_it_is_confirmed() -> None:
    log = PlanLog(workers=2)
    log.publish([plan(1), plan(2)])
    log.publish([plan(3), plan(4)])
    assert log.planned == 2
    log.confirm(0, 0)
    with pytest.raises(KeyError):
        log.get(0, 0)
    assert [log.get(slot, t).samples for slot, t in ((1, 0), (0, 1), (1, 1))] == [2, 3, 4]


def test_every_worker_gets_a_plan() -> None:
    with pytest.raises(ValueError, match="shorter"):
        PlanLog(workers=2).publish([plan(1)])
