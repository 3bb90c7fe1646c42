"""Versioned reads and idempotent pushes, over the memory store."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pytest

from esd.native.rows import HeldFrame, WaitingRows
from esd.protos import ps_pb2
from esd.ps_server.core.gradients import apply_optimizer
from esd.ps_server.core.shard import Shard
from esd.ps_server.core.tables import Tables
from esd.ps_server.stores.memory import MemoryStore
from esd.services.domain.errors import FailedPrecondition, InvalidArgument, NotFound, StaleEpoch
from esd.services.domain.ids import shard_of
from esd.services.domain.rows import GradientBlock, RowBlock
from esd.services.domain.tables import OptimizerKind, OptimizerSpec, TableSpec
from esd.services.wire.rows import encode_gradients, encode_rows
from tests.support.stores import DISPATCHER

SPEC = TableSpec("t", 4, OptimizerSpec(OptimizerKind.ADAM, 0.1), seed=3, init_scale=0.5)


WHOLE = Shard()


def make_table(spec=SPEC, shard=WHOLE):
    tables = Tables(MemoryStore(), shard)
    assert tables.create(spec)
    return tables.get(spec.name)


def rows_at(ids, version, value=1.0, width=SPEC.row_width):
    ids = np.array(ids, np.uint64)
    return RowBlock(ids, np.full(len(ids), version, np.int64), np.full((len(ids), width), value, np.float32))


def gradients_of(worker, ids, target, contributors, values=None, step=1, rate=SPEC.optimizer.learning_rate):
    ids = np.array(ids, np.uint64)
    if values is None:
        values = np.full((len(ids), SPEC.dimension), worker + 1, np.float32)
    return GradientBlock(
        ids,
        np.full(len(ids), target, np.int64),
        np.full(len(ids), contributors, np.uint64),
        np.full(len(ids), step, np.uint32),
        np.full(len(ids), rate, np.float32),
        values,
        worker,
    )


def test_a_row_is_born_the_same_whoever_asks_first():
    ids = np.array([7, 2**64 - 1], np.uint64)
    one, other = make_table().read(ids), make_table().read(ids[::-1].copy())
    assert one.versions.tolist() == [0, 0]
    np.testing.assert_array_equal(one.rows, other.rows[::-1])
    assert (np.abs(one.rows[:, :4]) <= 0.5).all()
    assert one.rows[:, :4].std() > 0
    assert (one.rows[:, 4:] == 0).all()


def test_only_newer_rows_are_stored():
    table = make_table()
    first = table.push_rows(rows_at([1, 2], 5))
    assert (first.stored, first.already_known) == (2, 0)
    again = table.push_rows(rows_at([1, 2], 5, value=9))
    older = table.push_rows(rows_at([1, 3], 4, value=9))
    assert (again.stored, again.already_known) == (0, 2)
    assert (older.stored, older.already_known) == (1, 1)
    read = table.read(np.array([1, 2, 3], np.uint64))
    assert read.versions.tolist() == [5, 5, 4]
    assert read.rows[:, 0].tolist() == [1, 1, 9]
    assert table.stored_rows() == 3


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_gradients_are_summed_in_worker_order_and_applied_once(order):
    rng = np.random.default_rng(0)
    parts = (rng.standard_normal((3, 1, 4)) * [[[1e-3]], [[1]], [[1e3]]]).astype(np.float32)
    table, reference = make_table(), make_table()
    for count, worker in enumerate(order):
        pushed = table.push_gradients(gradients_of(worker, [8], 1, 0b111, parts[worker]))
        assert (pushed.stored, pushed.already_known) == (1, 0)
        assert len(pushed.ids) == (count == 2)
        assert table.pending_gradients() == (count + 1) % 3
    reference.push_gradients(gradients_of(0, [8], 1, 0b1, (parts[0] + parts[1]) + parts[2]))
    ids = np.array([8], np.uint64)
    assert table.read(ids).versions.tolist() == [1]
    np.testing.assert_array_equal(table.read(ids).rows, reference.read(ids).rows)
    assert not np.array_equal(table.read(ids).rows, make_table().read(ids).rows)


@pytest.mark.parametrize("kind", OptimizerKind, ids=lambda kind: kind.value)
def test_a_split_row_is_trained_at_the_rate_that_its_gradients_bring(kind):
    """Each step has its own rate, and the rate of the table's specification counts for nothing."""
    spec = TableSpec("t", 4, OptimizerSpec(kind, 9.0), seed=3, init_scale=0.5)
    table = make_table(spec)
    expected = table.read(np.array([8], np.uint64)).rows
    for step, rate in enumerate((0.3, 0.0, 0.05), start=1):
        for worker in (1, 0):
            table.push_gradients(gradients_of(worker, [8], step, 0b11, step=step, rate=rate))
        steps, rates = np.array([step], np.uint32), np.array([rate], np.float32)
        apply_optimizer(spec.optimizer, expected, np.full((1, 4), 3, np.float32), steps, rates)
    np.testing.assert_array_equal(table.read(np.array([8], np.uint64)).rows, expected)


def test_repeated_contributions_change_nothing():
    table = make_table()
    for _ in range(2):
        first = table.push_gradients(gradients_of(0, [1, 2], 1, 0b11))
    assert (first.stored, first.already_known, len(first.ids)) == (0, 2, 0)
    table.push_gradients(gradients_of(1, [1, 2], 1, 0b11))
    ids = np.array([1, 2], np.uint64)
    trained = table.read(ids).rows
    for worker in (0, 1):
        late = table.push_gradients(gradients_of(worker, [1, 2], 1, 0b11))
        # Announced again: whoever waits may have missed the first time.
        assert (late.stored, late.already_known, late.versions.tolist()) == (0, 2, [1, 1])
    np.testing.assert_array_equal(table.read(ids).rows, trained)
    assert table.pending_gradients() == 0


def test_one_push_may_wait_complete_and_repeat():
    table = make_table()
    table.push_rows(rows_at([3], 1))
    table.push_gradients(gradients_of(1, [2], 1, 0b11))
    pushed = table.push_gradients(gradients_of(0, [1, 2, 3], 1, 0b11))
    assert (pushed.stored, pushed.already_known) == (2, 1)
    assert sorted(pushed.ids.tolist()) == [2, 3]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (gradients_of(1, [1], 1, 0b111), "disagrees"),
        (gradients_of(1, [1], 1, 0b11, step=2), "disagrees"),
        (gradients_of(1, [1], 2, 0b11), "only at 0"),
    ],
)
def test_disagreement_is_refused_and_changes_nothing(wrong, message):
    table = make_table()
    table.push_gradients(gradients_of(0, [1], 1, 0b11))
    with pytest.raises(FailedPrecondition, match=message):
        table.push_gradients(wrong)
    assert table.pending_gradients() == 1
    assert len(table.push_gradients(gradients_of(1, [1], 1, 0b11)).ids) == 1


def test_a_row_push_may_not_void_pending_gradients():
    table = make_table()
    table.push_gradients(gradients_of(0, [1], 1, 0b11))
    with pytest.raises(FailedPrecondition, match="version 1 are pending"):
        table.push_rows(rows_at([2, 1], 2))
    assert table.stored_rows() == 0


def test_what_a_crash_left_pending_is_forgotten():
    store = MemoryStore()
    tables = Tables(store, Shard())
    tables.create(SPEC)
    table, backend = tables.get("t"), store.open(SPEC)
    table.push_gradients(gradients_of(0, [1], 1, 0b11))
    backend.rows.write_newer(rows_at([1], 1))  # as if the process had died before it discarded the gradient
    assert table.push_rows(rows_at([1], 1)).already_known == 1
    assert table.push_gradients(gradients_of(0, [1], 2, 0b11)).stored == 1
    assert table.pending_gradients() == 1


def change(block, **columns):
    return type(block)(**{name: columns.get(name, getattr(block, name)) for name in type(block).__slots__})


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (rows_at([1, 2, 1], 1), "row 1 is named twice"),
        (rows_at([1], 0), "must be in 1"),
        (rows_at([1], 2**60), "must be in 1"),
        (rows_at([1], 1, width=5), r"\(1, 12\) is needed"),
        (rows_at([1], 1, value=np.nan), "row 1 holds NaN"),
        (rows_at([1], 1, value=-np.inf), "row 1 holds NaN"),
        (change(rows_at([1, 2], 1), versions=np.ones(1, np.int64)), "1 versions given for 2 ids"),
        (gradients_of(0, [5, 5], 1, 0b11), "row 5 is named twice"),
        (gradients_of(2, [5], 1, 0b11), "worker 2 is not among the contributors 0x3 of row 5"),
        (gradients_of(128, [5], 1, 0b11), "slots are 0..127"),
        (gradients_of(64, [5], 1, 0b11), "worker 64 is not among the contributors 0x3 of row 5"),
        (gradients_of(0, [5], 0, 0b11), "must be in 1"),
        (gradients_of(0, [5], 1, 0b11, step=0), "steps count from 1"),
        (gradients_of(0, [5], 1, 0b11, rate=-0.1), "rate of row 5 is -0.1"),
        (gradients_of(0, [5], 1, 0b11, rate=np.nan), "rate of row 5 is nan"),
        (gradients_of(0, [5], 1, 0b11, np.full((1, 4), np.nan, np.float32)), "not finite"),
        (gradients_of(0, [5], 1, 0b11, np.zeros((1, 12), np.float32)), r"\(1, 4\) is needed"),
    ],
)
def test_wrong_pushes_are_refused_whole(block, message):
    table = make_table()
    push = table.push_rows if isinstance(block, RowBlock) else table.push_gradients
    with pytest.raises(InvalidArgument, match=message):
        push(block)
    assert table.stored_rows() == table.pending_gradients() == 0


def test_ids_of_other_shards_are_refused():
    ids = np.arange(100, dtype=np.uint64)
    owners = shard_of(ids, 3)
    table = make_table(shard=Shard(1, 3))
    table.push_rows(rows_at(ids[owners == 1], 1))
    with pytest.raises(InvalidArgument, match="this server is shard 1 of 3"):
        table.push_rows(rows_at(ids[:20], 1))
    with pytest.raises(InvalidArgument, match="shard"):
        table.push_gradients(gradients_of(0, ids[:20], 2, 1))
    with pytest.raises(InvalidArgument, match=r"it must be in 0\.\.2"):
        Shard(3, 3)


def test_tables_are_made_once_with_one_specification():
    tables = Tables(MemoryStore(), Shard())
    assert tables.create(SPEC)
    assert not tables.create(SPEC)
    assert not tables.create(replace(SPEC, optimizer=OptimizerSpec(OptimizerKind.ADAM, 0.2)))  # its job's business
    other = TableSpec("t", 8, SPEC.optimizer, seed=3, init_scale=0.5)
    with pytest.raises(FailedPrecondition, match="dimension 4 instead of 8"):
        tables.create(other)
    with pytest.raises(NotFound, match="no table 'u'"):
        tables.get("u")
    assert [table.spec for table in tables.all()] == [SPEC]


LIFE = 2 * 2**30  # where the versions of the second life that begins anew start


def test_a_row_of_the_next_life_is_born_whatever_is_stored():
    table, ids = make_table(), np.array([1, 2], np.uint64)
    born = table.read(ids)
    table.push_rows(rows_at([1], 5))
    for _ in range(2):  # before and after it is forgotten
        read = table.read(ids, np.array([LIFE, LIFE]))
        assert read.versions.tolist() == [LIFE, LIFE]
        np.testing.assert_array_equal(read.rows, born.rows)
        table.forget(ids, LIFE, epoch=0)
    assert table.stored_rows() == 0


CONTINUED = 2**30  # the first version of an odd life, which begins with what is stored


def test_a_row_of_an_odd_life_continues_with_what_is_stored():
    table, ids = make_table(), np.array([1, 2], np.uint64)
    new = table.read(ids)
    table.push_rows(rows_at([1], 5))
    stored = table.read(ids)
    read = table.read(ids, np.array([CONTINUED, CONTINUED]))
    assert read.versions.tolist() == [CONTINUED, CONTINUED]
    np.testing.assert_array_equal(read.rows, [stored.rows[0], new.rows[1]])
    later = table.read(ids, np.array([CONTINUED + 1, CONTINUED + 1]))
    assert later.versions.tolist() == [CONTINUED, CONTINUED], "a training of the new life is still to come"


@pytest.mark.parametrize("by_frame", [False, True])
def test_a_gradient_of_an_odd_life_trains_what_is_stored(by_frame):
    tables = [make_table(), make_table()]
    for table in tables:
        table.push_rows(rows_at([1], 5))
    for worker in (0, 2):
        tables[0].push_gradients(gradients_of(worker, [1, 2], 6, 0b101, step=9)[:1])
        tables[0].push_gradients(gradients_of(worker, [1, 2], 1, 0b101, step=9)[1:])
        gradients = gradients_of(worker, [1, 2], CONTINUED + 1, 0b101, step=9)
        if by_frame:
            message = ps_pb2.ExchangeRequest(sequence=1, table="t", epoch=0)
            encode_gradients(gradients, message.gradients)
            applied = tables[1].apply_at_once(HeldFrame(message.SerializeToString()), WaitingRows(), 10)
            assert applied.good
        else:
            tables[1].push_gradients(gradients)
    expected, continued = (table.read(np.array([1, 2], np.uint64)) for table in tables)
    np.testing.assert_array_equal(continued.rows, expected.rows)
    assert continued.versions.tolist() == [CONTINUED + 1, CONTINUED + 1]


def test_what_is_pending_for_an_earlier_life_does_no_harm():
    table = make_table()
    table.push_rows(rows_at([1, 2, 3], 5))
    table.push_gradients(gradients_of(0, [1, 2, 3], 6, 0b11))
    assert table.forget(np.array([1], np.uint64), LIFE, epoch=0) == 1
    assert table.pending_gradients() == 2
    table.push_rows(rows_at([2], LIFE + 1))  # its forgetting is still on its way
    table.push_gradients(gradients_of(0, [3], LIFE + 1, 0b101, step=9))
    assert table.pending_gradients() == 1
    assert table.forget(np.array([2, 3], np.uint64), LIFE, epoch=0) == 1
    made = table.push_gradients(gradients_of(2, [3], LIFE + 1, 0b101, step=9))
    assert (made.ids.tolist(), made.versions.tolist()) == ([3], [LIFE + 1])

    fresh = make_table()
    for worker in (0, 2):
        fresh.push_gradients(gradients_of(worker, [3], 1, 0b101, step=9))
    ids = np.array([3], np.uint64)
    np.testing.assert_array_equal(table.read(ids).rows, fresh.read(ids).rows)
    assert table.read(np.array([2, 3], np.uint64)).versions.tolist() == [LIFE + 1, LIFE + 1]


def test_only_lives_that_are_over_can_be_forgotten():
    table = make_table()
    for below in (0, 1, LIFE + 1, -LIFE, 2**60):
        with pytest.raises(InvalidArgument, match="a multiple of 2\\^30"):
            table.forget(np.array([1], np.uint64), below, epoch=0)
    with pytest.raises(InvalidArgument, match="named twice"):
        table.forget(np.array([1, 1], np.uint64), LIFE, epoch=0)
    with pytest.raises(StaleEpoch):
        table.forget(np.array([1], np.uint64), LIFE, epoch=1)
    with pytest.raises(InvalidArgument, match="name at least 1 trainings"):
        table.push_rows(rows_at([1], LIFE))


def frame_of(ids, version, epoch=0):
    """A frame that stores rows, as its bytes have it."""
    message = ps_pb2.ExchangeRequest(sequence=1, table="t", epoch=epoch)
    encode_rows(rows_at(ids, version), message.rows)
    return HeldFrame(message.SerializeToString())


def test_a_frame_that_would_wait_for_a_lock_goes_the_other_way():
    table = make_table()
    held = [
        table.history._lock.exclusive,  # as by a restore
        lambda: table._gradients,  # as by a push of gradients in a thread
    ]
    for lock in held:
        with ThreadPoolExecutor(1) as other, ExitStack() as stack:
            other.submit(stack.enter_context, lock()).result()
            assert table.apply_at_once(frame_of([1], 1), WaitingRows(), 10) is None
            other.submit(stack.close).result()
    assert table.stored_rows() == 0
    assert table.apply_at_once(frame_of([1], 1), WaitingRows(), 10).good
    assert table.apply_at_once(frame_of([2], 1, epoch=1), WaitingRows(), 10) is None
    assert table.stored_rows() == 1


def test_a_restore_waits_for_frames_that_are_under_way():
    table = make_table()
    with ThreadPoolExecutor(1) as other:
        with table.history.writing_at_once(0) as may_write:
            assert may_write
            restoring = other.submit(table.history.restore, 0, 1, DISPATCHER)
            with pytest.raises(FutureTimeout):
                restoring.result(0.05)
            with table.history.writing_at_once(0) as may_follow:
                assert not may_follow  # behind it
        restoring.result(20)
    assert table.history.record.epoch == 1
