"""Rows of other workers on their way to their places."""

import weakref

import numpy as np
import pytest

from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.plans import Transfers
from esd.services.domain.rows import RowBlock
from esd.worker.service.inbox import ExpectedRows

PLAN = Transfers(np.array([9, 4, 7], np.uint64), np.arange(3, dtype=np.uint32), np.array([3, 1, 2]), early=3)
PLACES = np.array([2, 0, 1])


def block(*ids, versions=None):
    known = dict(zip(PLAN.ids.tolist(), PLAN.versions.tolist(), strict=True))
    of_ids = [known.get(x, 1) for x in ids] if versions is None else versions
    rows = np.array([[x, -x] for x in ids], np.float32).reshape(len(ids), 2)
    return RowBlock(np.array(ids, np.uint64), np.array(of_ids), rows)


def test_rows_find_their_places_in_any_order_and_once():
    staging = np.zeros((3, 2), np.float32)
    expected = ExpectedRows(PLAN, staging, PLACES)
    assert expected.take(block(7, 9)) == 2
    again = block(9, 4)
    again.rows[0] = 5
    assert expected.take(again) == 1
    assert expected.missing == 0
    assert staging.tolist() == [[4, -4], [7, -7], [9, -9]]


@pytest.mark.parametrize("wrong", [block(7, 5), block(10), block(7, 9, versions=[2, 2]), block(0, versions=[-1])])
def test_rows_that_are_not_the_plans_are_refused_and_none_is_placed(wrong):
    staging = np.zeros((3, 2), np.float32)
    expected = ExpectedRows(PLAN, staging, PLACES)
    with pytest.raises(FailedPrecondition, match="is not expected from another worker"):
        expected.take(wrong)
    assert expected.missing == 3
    assert not staging.any()


def test_memory_is_let_go_when_all_rows_have_come():
    """Iterations that are over are still compared with repeated rows, and hold ids and versions only."""
    staging = np.zeros((3, 2), np.float32)
    held = weakref.ref(staging)
    expected = ExpectedRows(PLAN, staging, PLACES)
    del staging
    expected.take(block(9, 4))
    assert held() is not None
    expected.take(block(7))
    assert held() is None
    assert expected.take(block(4, 7)) == 0
