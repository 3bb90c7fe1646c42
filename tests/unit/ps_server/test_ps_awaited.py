"""Which announcements end the wait of a pull."""

import numpy as np

from ps_server.core.versions import Awaited


def u64(*values):
    return np.array(values, np.uint64)


def i64(*values):
    return np.array(values, np.int64)


def awaiting(ids, wanted):
    awaited = Awaited(ids, wanted)
    awaited.expect(np.ones(len(ids), np.bool_))
    return awaited


def test_the_wait_ends_when_every_expected_row_was_found_or_announced():
    awaited = awaiting(u64(30, 10, 20), i64(3, 1, 2))
    awaited.found(np.array([False, True, False]))
    awaited.announce(u64(20, 99), i64(2, 1))
    assert not awaited.complete
    assert awaited.first_missing() == 0
    awaited.announce(u64(1, 30), i64(7, 3))
    assert awaited.complete
    assert awaited.first_missing() is None


def test_older_versions_and_other_rows_do_not_count():
    awaited = awaiting(u64(5, 2**64 - 1), i64(4, 4))
    awaited.announce(u64(5), i64(3))
    awaited.announce(u64(6, 0), i64(4, 4))
    awaited.announce(u64(2**64 - 1), i64(4))
    assert awaited.first_missing() == 0


def test_a_newer_version_ends_the_wait_too():
    awaited = awaiting(u64(5), i64(4))
    awaited.announce(u64(5), i64(9))
    assert awaited.complete


def test_an_announcement_during_the_read_is_remembered():
    awaited = awaiting(u64(1, 2), i64(1, 1))
    awaited.announce(u64(1), i64(1))
    awaited.found(np.array([False, True]))
    assert awaited.complete


def test_a_row_that_is_read_again_must_be_announced_again():
    awaited = awaiting(u64(1, 2), i64(1, 1))
    awaited.announce(u64(1, 2), i64(1, 1))
    awaited.expect(np.array([True, False]))
    assert awaited.first_missing() == 0
    awaited.announce(u64(1), i64(1))
    assert awaited.complete
