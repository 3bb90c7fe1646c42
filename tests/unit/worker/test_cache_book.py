from dataclasses import replace

import numpy as np
import pytest

from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.plans import FlushPlan, Reload
from esd.worker.core.cache_book import CacheBook

ME, OTHER = 0b01, 0b10
BOTH = ME | OTHER


@pytest.fixture
def book(plans):
    """After iteration 0: id 10 owned in slot 0, id 11 a partial gradient in slot 1; slots 2 and 3 empty."""
    book = CacheBook(rows=[4], worker=0, epoch=1)
    book.enter(plans.plan(0, pulls=[(10, 0, 0), (11, 1, 0)], train=[(10, 0, 0, ME), (11, 1, 0, BOTH)]))
    return book


def refuses(book, plan, *words):
    """The plan is refused with all words in the message, and the book is as it was."""
    before = (*book._slots.contents(), book.cached_rows, book.next_iteration)
    with pytest.raises(FailedPrecondition) as refusal:
        book.enter(plan)
    for word in words:
        assert word in str(refusal.value)
    after = (*book._slots.contents(), book.cached_rows, book.next_iteration)
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(old, new)


def test_a_row_is_pushed_pulled_back_evicted_and_replaced(book, plans):
    book.enter(
        plans.plan(
            1,
            update_rows=plans.rows((10, 0, 1)),
            update_gradients=plans.gradients((11, 1, 1, BOTH)),
            pulls=[(11, 1, 1)],
            train=[(10, 0, 1, BOTH), (11, 1, 1, ME)],
        )
    )
    book.enter(
        plans.plan(
            2,
            evict_gradients=plans.gradients((10, 0, 2, BOTH)),
            evict_rows=plans.rows((11, 1, 2)),
            pulls=[(12, 0, 0), (13, 1, 7)],
            train=[(12, 0, 0, ME), (13, 1, 7, ME)],
        )
    )
    assert book.next_iteration == 3
    assert book.cached_rows == 2


def test_an_owned_row_trains_again_without_a_transfer(book, plans):
    book.enter(plans.plan(1, train=[(10, 0, 1, ME)]))
    refuses(book, plans.plan(2, train=[(10, 0, 1, ME)]), "slot 0", "id 10", "version 1", "holds id 10 at version 2")


def test_an_update_push_and_a_drop_of_the_same_row_fit(book, plans):
    book.enter(plans.plan(1, update_rows=plans.rows((10, 0, 1)), drops=plans.rows((10, 0, 1))))
    assert book.cached_rows == 1


@pytest.mark.parametrize(
    ("column", "row"),
    [("update_rows", (10, 0, 2)), ("update_rows", (12, 0, 1)), ("evict_rows", (11, 1, 1)), ("evict_rows", (10, 2, 1))],
    ids=["version", "id", "is a gradient", "empty slot"],
)
def test_refuses_a_row_push_of_something_else(book, plans, column, row):
    step = "update push" if column == "update_rows" else "evict push"
    refuses(book, plans.plan(1, **{column: plans.rows(row)}), step, f"id {row[0]}", f"slot {row[1]}", "owned expected")


@pytest.mark.parametrize("column", ["update_gradients", "evict_gradients"])
def test_refuses_a_gradient_push_of_an_owned_row(book, plans, column):
    refuses(book, plans.plan(1, **{column: plans.gradients((10, 0, 1, BOTH))}), "partial expected", "owned")


def test_refuses_a_gradient_push_that_others_contribute(book, plans):
    refuses(book, plans.plan(1, update_gradients=plans.gradients((11, 1, 1, OTHER))), "id 11", "slot 0", "0x2")


def test_a_gradient_is_pushed_once(book, plans):
    push = plans.gradients((11, 1, 1, BOTH))
    refuses(book, plans.plan(1, update_gradients=push, evict_gradients=push), "evict push", "spent")


def test_refuses_to_drop_what_is_not_pushed(book, plans):
    refuses(book, plans.plan(1, drops=plans.rows((10, 0, 1))), "nothing unpushed", "slot 0", "owned")
    refuses(book, plans.plan(1, drops=plans.rows((11, 1, 1))), "nothing unpushed", "slot 1", "partial")
    refuses(book, plans.plan(1, drops=plans.rows((12, 2, 0))), "slot 2 is empty")


def test_copies_of_forgotten_rows_are_discarded_whatever_they_owe(book, plans):
    discards = plans.rows((10, 0, 1), (11, 1, 1))
    book.enter(plans.plan(1, discards=discards, pulls=[(12, 1, 2**30)], train=[(12, 1, 2**30, ME)]))
    assert book.cached_rows == 1
    refuses(book, plans.plan(2, discards=plans.rows((10, 0, 1))), "discard: id 10", "slot 0 is empty")
    refuses(book, plans.plan(2, discards=plans.rows((10, 1, 1))), "discard: id 10", "holds id 12")


def test_refuses_to_pull_over_a_row(book, plans):
    refuses(book, plans.plan(1, pulls=[(12, 0, 0)]), "pull of id 12 version 0", "holds id 10")
    refuses(book, plans.plan(1, pulls=[(10, 0, 5)]), "pull of id 10 version 5", "owned")


def test_pulls_nothing_that_is_older(book, plans):
    """A copy of the same version may be pulled again, as it is where nothing is cached."""
    book.enter(plans.plan(1, update_rows=plans.rows((10, 0, 1))))
    refuses(book, plans.plan(2, pulls=[(10, 0, 0)]), "a copy that is not newer expected", "version 1, clean")
    book.enter(plans.plan(2, pulls=[(10, 0, 1)]))
    book.enter(plans.plan(3, pulls=[(10, 0, 2)]))


def test_refuses_to_train_a_row_that_is_not_there(book, plans):
    refuses(book, plans.plan(1, train=[(12, 2, 0, ME)]), "training: id 12", "slot 2 is empty")
    refuses(book, plans.plan(1, train=[(11, 1, 1, ME)]), "training: id 11", "partial")


def test_refuses_to_train_for_others(book, plans):
    refuses(book, plans.plan(1, train=[(10, 0, 1, OTHER)]), "training of id 10", "do not include this worker")


def test_refuses_slots_beyond_the_cache(book, plans):
    refuses(book, plans.plan(1, pulls=[(12, 4, 0)]), "slot 4 does not exist", "the cache has room for 4 rows")


def test_refuses_a_slot_named_twice(book, plans):
    refuses(book, plans.plan(1, pulls=[(12, 2, 0), (13, 2, 0)]), "slot 2 is named twice")


def test_refuses_plans_out_of_order(book, plans):
    refuses(book, plans.plan(0), "iteration 0", "expected 1")
    refuses(book, plans.plan(2), "iteration 2", "expected 1")
    refuses(book, plans.plan(1, epoch=2), "epoch 2", "epoch 1")


def test_refuses_samples_that_name_unknown_rows(book, plans):
    fits = plans.plan(1, train=[(10, 0, 1, ME)])
    refuses(book, replace(fits, inverse=np.array([1], np.uint32)), "inverse names row 1", "1 rows")
    refuses(book, replace(fits, batch_size=0), "1 samples", "global batch has 0")


def test_a_flush_brings_everything_home(book, plans):
    book.enter_flush(FlushPlan(1, 1, plans.rows((10, 0, 1)), plans.gradients((11, 1, 1, BOTH))))
    book.enter(plans.plan(1, drops=plans.rows((10, 0, 1), (11, 1, 1))))
    assert book.cached_rows == 0


def test_refuses_a_flush_that_leaves_something_behind(book, plans):
    with pytest.raises(FailedPrecondition, match=r"leaves 1 unpushed rows behind.*slot 1 holds id 11.*partial"):
        book.enter_flush(FlushPlan(1, 1, plans.rows((10, 0, 1)), plans.gradients()))
    book.enter_flush(FlushPlan(1, 1, plans.rows((10, 0, 1)), plans.gradients((11, 1, 1, BOTH))))


def test_a_reloaded_cache_takes_the_plans_of_its_epoch(plans):
    book = CacheBook([4], worker=0, epoch=1, first_iteration=20)
    book.enter_reload(Reload(20, rows=plans.rows((7, 0, 3)), outdated=plans.rows((8, 1, 5))))
    assert (book.cached_rows, book.next_iteration) == (2, 20)
    with pytest.raises(FailedPrecondition, match="training: id 8"):  # its latest value is elsewhere
        book.enter(plans.plan(20, train=[(8, 1, 5, 1)]))
    book.enter(plans.plan(20, pulls=[(8, 1, 5)], train=[(7, 0, 3, 1), (8, 1, 5, 1)]))
    with pytest.raises(FailedPrecondition, match="empty cache"):
        book.enter_reload(Reload(20, rows=plans.rows(), outdated=plans.rows()))


def test_a_reload_must_fit_the_cache(plans):
    book = CacheBook([4], worker=0, epoch=1)
    with pytest.raises(FailedPrecondition, match="slot 4 does not exist"):
        book.enter_reload(Reload(1, rows=plans.rows((7, 4, 3)), outdated=plans.rows()))
    with pytest.raises(FailedPrecondition, match="named twice"):
        book.enter_reload(Reload(1, rows=plans.rows((7, 1, 3)), outdated=plans.rows((8, 1, 3))))
    assert book.cached_rows == 0


SECOND_TABLE = 1 << 56  # the first id of it


def test_every_table_has_slots_of_its_own(plans):
    book = CacheBook([2, 4], worker=0, epoch=1)
    rows = [(5, 1, 0), (SECOND_TABLE + 5, 1, 0), (SECOND_TABLE + 9, 3, 0)]
    book.enter(plans.plan(0, pulls=rows, train=[(*row, 1) for row in rows]))
    assert book.cached_rows == 3
    refuses(book, plans.plan(1, pulls=[(7, 2, 0)]), "slot 2 of table 0 does not exist", "room for 2 rows")
    refuses(book, plans.plan(1, pulls=[(2 * SECOND_TABLE, 0, 0)]), "is of table 2, there are 2")
    refuses(
        book,
        plans.plan(1, pulls=[(6, 0, 0), (SECOND_TABLE + 6, 1, 0)]),  # what table 0 has entered is taken back
        "slot 1 of table 1 holds id 72057594037927941 at version 1, owned",
    )
    with pytest.raises(FailedPrecondition, match="first: slot 3 of table 1 holds"):
        book.enter_flush(FlushPlan(1, 1, plans.rows((5, 1, 1), (SECOND_TABLE + 5, 1, 1)), plans.gradients()))
    book.enter_flush(FlushPlan(1, 1, plans.rows(*((x, slot, 1) for x, slot, _ in rows)), plans.gradients()))


def test_a_copy_of_ones_own_is_trained_on_until_it_is_pushed_and_after(plans):
    """Where copies are kept: it goes by the version that was pulled, then by the one that its push has made."""
    book = CacheBook([4], 0, 1, keeps_copies=True)
    book.enter(plans.plan(0, pulls=[(10, 0, 3)], train=[(10, 0, 3, ME)]))
    book.enter(plans.plan(1, train=[(10, 0, 3, ME)]))
    refuses(book, plans.plan(2, train=[(10, 0, 4, ME)]), "holds id 10 at version 3, partial")
    refuses(book, plans.plan(2, pulls=[(10, 0, 5)]), "holds id 10 at version 3, partial")
    refuses(book, plans.plan(2, update_gradients=plans.gradients((10, 0, 3, ME))), "id 10 before version 3, partial")
    refuses(book, plans.plan(2, update_gradients=plans.gradients((10, 0, 7, OTHER))), "do not include this worker")
    book.enter(plans.plan(2, update_gradients=plans.gradients((10, 0, 7, BOTH)), train=[(10, 0, 7, ME)]))
    refuses(book, plans.plan(3, drops=plans.rows((10, 0, 7))), "with nothing unpushed")
    again = plans.gradients((10, 0, 8, ME))
    book.enter(plans.plan(3, update_gradients=again, pulls=[(10, 0, 8)], train=[(10, 0, 8, ME)]))
    book.enter(plans.plan(4, evict_gradients=plans.gradients((10, 0, 9, ME)), pulls=[(11, 0, 0)]))
    assert book.cached_rows == 1
