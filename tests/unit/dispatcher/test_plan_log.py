"""Plans are kept until their worker confirms them, and no longer."""

import pytest

from esd.dispatcher.service.state.epoch import PlanLog, PublishedPlan
from esd.services.domain.worker_set import WorkerSet


def plan(samples: int) -> PublishedPlan:
    return PublishedPlan(b"", samples)


def test_a_plan_lives_until_it_is_confirmed() -> None:
    log = PlanLog(WorkerSet.all_of(2))
    log.publish([plan(1), plan(2)])
    log.publish([plan(3), plan(4)])
    assert log.planned == 2
    log.confirm(0, 0)
    with pytest.raises(KeyError):
        log.get(0, 0)
    assert [log.get(slot, t).samples for slot, t in ((1, 0), (0, 1), (1, 1))] == [2, 3, 4]


def test_plans_of_workers_that_do_not_train_are_not_kept() -> None:
    """No worker confirms them: in an epoch that lasts for weeks they would fill the memory."""
    log = PlanLog(WorkerSet.of([0, 2]), first=7)
    log.publish([plan(4), plan(0), plan(4)])
    assert (log.planned, log.get(2, 7).samples) == (8, 4)
    with pytest.raises(KeyError):
        log.get(1, 7)
