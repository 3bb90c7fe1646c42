"""Admission of ids: as by exact counts while the sketch is nearly empty, and never later."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from esd.native.engine import Admission
from esd.services.domain.ids import in_table, mix64, table_of

SEED = 11
ROWS = 4


def cells_of(ids: np.ndarray, bits: int) -> np.ndarray:
    """The cell of each id in each row of the sketch, [ids, ROWS], by the formula of the kernel's comments."""
    hashes = mix64(ids ^ mix64(np.array([SEED], np.uint64)))
    in_row = 2**29 // bits // ROWS
    first, step = hashes % 2**32, hashes >> np.uint64(32) | np.uint64(1)
    rows = np.arange(ROWS, dtype=np.uint64)
    return rows * np.uint64(in_row) + (first[:, None] + rows * step[:, None]) % 2**32 % in_row


def cell(words: np.ndarray, at: np.ndarray, bits: int) -> np.ndarray:
    of_word = 64 // bits
    return words[at // of_word] >> (at % of_word * bits).astype(np.uint64) & np.uint64(2**bits - 1)


@pytest.mark.parametrize(("afters", "bits"), [((2,), 2), ((3,), 2), ((9,), 4), ((255,), 8), ((1, 4, 2), 4)])
def test_an_id_is_admitted_in_the_nth_iteration_that_has_it(afters, bits):
    """The reference counts in a dict, and keeps lists as lists; a repeat within an iteration is no other iteration."""
    rng = np.random.default_rng(5)
    admission, seen = Admission(afters, SEED), Counter()
    admitted = held = 0
    for _ in range(60 if max(afters) < 100 else 300):
        lengths = rng.integers(0, 4, (8, 3), dtype=np.uint32)
        ids = rng.zipf(1.5, int(lengths.sum())).astype(np.uint64) % 1000
        if len(afters) > 1:
            ids = in_table(ids, rng.integers(0, len(afters), len(ids)).astype(np.uint64))
        seen.update(distinct := np.unique(ids).tolist())
        needed = {x: afters[int(table_of(np.uint64(x)))] if len(afters) > 1 else afters[0] for x in distinct}
        divided = admission.count(ids, lengths)
        trained = np.array([seen[x] >= needed[x] for x in ids.tolist()], np.bool_)
        of_list = np.repeat(np.arange(lengths.size), lengths.reshape(-1))
        np.testing.assert_array_equal(divided.ids, ids[trained])
        np.testing.assert_array_equal(
            divided.lengths, np.bincount(of_list[trained], minlength=lengths.size).reshape(lengths.shape)
        )
        np.testing.assert_array_equal(divided.initial_ids, [x for x in distinct if seen[x] < needed[x]])
        assert divided.newly == sum(seen[x] == needed[x] > 1 for x in distinct)
        admitted, held = admitted + divided.newly, held + len(divided.initial_ids)
    assert admitted > 0 < held
    counted = np.array([x for x in seen if len(afters) == 1 or afters[x >> 56] > 1], np.uint64)
    expected = [min(seen[x], afters[0] if len(afters) == 1 else afters[x >> 56]) for x in counted.tolist()]
    cells = cells_of(counted, bits)
    np.testing.assert_array_equal(cell(admission.words, cells, bits).min(axis=1), expected)
    assert np.count_nonzero(admission.words) <= ROWS * len(counted)


def test_samples_with_one_id_of_each_feature_need_no_lengths():
    ids = np.array([[1, 2], [3, 2]], np.uint64)
    admission = Admission([2], SEED)
    assert admission.count(ids).lengths.tolist() == [[0, 0], [0, 0]]
    divided = admission.count(np.array([[4, 2], [2, 3]], np.uint64))
    assert (divided.ids.tolist(), divided.lengths.tolist()) == ([2, 2, 3], [[0, 1], [1, 1]])
    assert divided.initial_ids.tolist() == [4]


def test_an_id_whose_cells_another_one_has_raised_is_admitted_earlier_and_never_later():
    """Two hashes that differ above the bits of a row have the same cells."""
    bit = np.uint64(1) << np.uint64(30)
    one = np.array([[7]], np.uint64)
    hashed = mix64(one ^ mix64(np.array([SEED], np.uint64)))
    other = _unmixed(int(hashed[0, 0] ^ bit)) ^ int(mix64(np.array([SEED], np.uint64))[0])
    other_id = np.array([[other]], np.uint64)
    np.testing.assert_array_equal(cells_of(one[0], 2), cells_of(other_id[0], 2))
    admission = Admission([3], SEED)
    assert admission.count(one).initial_ids.tolist() == [7]
    assert admission.error == 0
    assert admission.count(other_id).initial_ids.tolist() == [other]
    assert admission.error == pytest.approx(2.0**-104)  # one cell of 2^26 in each of four rows counts two iterations
    assert admission.count(one).newly == 1
    assert admission.count(other_id).initial_ids.tolist() == []


def _unmixed(value: int) -> int:
    """The inverse of mix64."""
    most = 2**64 - 1
    value ^= value >> 31 ^ value >> 62
    value = value * 0x319642B2D24D8EC3 & most
    value ^= value >> 27 ^ value >> 54
    value = value * 0x96DE1B173F119089 & most
    return value ^ value >> 30 ^ value >> 60


def test_the_error_is_the_share_of_new_ids_that_are_admitted_at_once():
    admission, rng = Admission([2], SEED), np.random.default_rng(3)
    at_once = ids = 0
    for turn in range(40):
        batch = rng.integers(0, 2**63, (1 << 19, 1), dtype=np.uint64)
        expected = admission.error
        newly = admission.count(batch).newly
        if turn >= 35:
            assert newly / len(batch) == pytest.approx((expected + admission.error) / 2, rel=0.2)
            at_once, ids = at_once + newly, ids + len(batch)
    assert 0.001 < at_once / ids < 0.01


def test_what_is_expected_of_a_later_iteration_counts_nothing():
    ids = np.array([[1], [2]], np.uint64)
    admission = Admission([2], SEED)
    assert admission.expect(ids).initial_ids.tolist() == [1, 2]
    admission.count(ids[:1])
    before = admission.words.copy()
    assert admission.expect(ids).ids.tolist() == [1]
    np.testing.assert_array_equal(admission.words, before)


def test_mistakes_are_refused():
    for afters, message in [((1, 1), "nothing to count"), ((0, 2), "in iteration 0"), ((256,), "in iteration 256")]:
        with pytest.raises(ValueError, match=message):
            Admission(afters, SEED)
    admission = Admission([2, 2], SEED)
    with pytest.raises(ValueError, match="is of table 2, there are 2"):
        admission.count(np.array([[1, 2 << 56]], np.uint64))
    assert not admission.words.any()
