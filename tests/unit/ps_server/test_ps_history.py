"""Epochs and cuts of one table."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest

from esd.ps_server.core.history_record import Checkpoint, Cut, HistoryRecord, resharded
from esd.ps_server.core.shard import Shard
from esd.ps_server.core.shared_lock import SharedLock
from esd.ps_server.core.table import Table
from esd.ps_server.stores.memory import memory_table
from esd.services.domain.errors import FailedPrecondition, InvalidArgument, StaleEpoch
from esd.services.domain.rows import GradientBlock, RowBlock
from esd.services.domain.tables import OptimizerSpec, TableSpec
from tests.support.stores import ANOTHER, DISPATCHER

SPEC = TableSpec("t", 2, OptimizerSpec(), seed=1, init_scale=0.1)
ALL = 0b11


@pytest.fixture
def store():
    return memory_table(SPEC)


@pytest.fixture
def table(store):
    return Table(SPEC, store, Shard())


def rows(version, *ids):
    r = len(ids)
    return RowBlock(np.array(ids, np.uint64), np.full(r, version), np.full((r, 2), version, np.float32))


def gradient(worker, target=1):
    columns = np.array([target]), np.array([ALL], np.uint64), np.array([1], np.uint32), np.ones(1, np.float32)
    return GradientBlock(np.array([5], np.uint64), *columns, np.ones((1, 2), np.float32), worker)


def versions(table, *ids):
    return table.read(np.array(ids, np.uint64)).versions.tolist()


def cut(table, checkpoint, epoch=0):
    assert not table.history.cut(epoch, checkpoint, 0, ALL)
    assert table.history.cut(epoch, checkpoint, 1, ALL)


def test_a_table_that_is_claimed_or_has_epochs_is_claimed_by_nobody_else(store, table):
    for _ in range(2):
        table.history.claim(DISPATCHER)
    table.history.check_epoch(0)
    with pytest.raises(FailedPrecondition, match="table 't' belongs to another job"):
        table.history.claim(ANOTHER)
    with pytest.raises(FailedPrecondition, match="table 't' belongs to another job"):
        Table(SPEC, store, Shard()).history.claim(ANOTHER)  # after a restart
    table.history.begin_epoch(1, ANOTHER, takes_over=True)  # a job with checkpoints
    with pytest.raises(FailedPrecondition, match="table 't' belongs to another job"):
        table.history.claim(DISPATCHER)


def test_a_table_in_an_epoch_of_nobody_is_claimed_by_nobody(store):
    store.history.save(HistoryRecord(epoch=3).encode())
    with pytest.raises(FailedPrecondition, match="table 't' belongs to another job"):
        Table(SPEC, store, Shard()).history.claim(DISPATCHER)


def test_a_cut_needs_every_worker_and_counts_each_once(table):
    assert not table.history.cut(0, 10, 1, ALL)
    assert not table.history.cut(0, 10, 1, ALL)
    with pytest.raises(FailedPrecondition, match="not complete"):
        table.history.commit(0, 10, b"m", 1)
    assert table.history.cut(0, 10, 0, ALL)
    assert table.history.cut(0, 10, 0, ALL)  # repeated
    table.history.commit(0, 10, b"m", 1)
    assert table.history.record.last == Checkpoint(10, b"m")


def test_rows_go_back_to_a_cut_and_pending_gradients_go(table):
    table.push_rows(rows(1, 1, 2))
    cut(table, 10)
    table.push_rows(rows(2, 1, 3))
    table.push_gradients(gradient(0))
    assert table.history.restore(10, 1, DISPATCHER) == 2
    assert versions(table, 1, 2, 3) == [1, 1, 0]
    assert table.pending_gradients() == 0
    table.push_rows(rows(2, 1, 3), epoch=1)
    table.history.restore(10, 2, DISPATCHER)
    assert versions(table, 1, 2, 3) == [1, 1, 0]


def test_rows_are_looked_up_as_they_were_at_any_kept_checkpoint(table):
    born = table.look_up(np.array([3, 4], np.uint64)).rows
    table.push_rows(rows(1, 1, 2))
    cut(table, 10)
    table.history.commit(0, 10, b"ten", 2)
    table.push_rows(rows(2, 1, 3))
    cut(table, 20)
    table.push_rows(rows(3, 1))  # whether or not the later cut is committed
    ids = np.array([1, 2, 3, 4], np.uint64)
    assert table.look_up(ids, 10).versions.tolist() == [1, 1, 0, 0]
    np.testing.assert_array_equal(table.look_up(ids, 10).rows[2:], born)  # with their initial values
    with pytest.raises(FailedPrecondition, match=r"no checkpoint 20; it keeps \[10\]"):
        table.look_up(ids, 20)
    table.history.commit(0, 20, b"twenty", 1)
    assert table.look_up(ids, 20).versions.tolist() == [2, 1, 2, 0]
    assert table.look_up(ids).versions.tolist() == [3, 1, 2, 0]
    with pytest.raises(FailedPrecondition, match=r"no checkpoint 10; it keeps \[20\]"):
        table.look_up(ids, 10)


def test_a_cut_that_was_not_committed_is_gone_back_over(table):
    table.push_rows(rows(1, 1))
    cut(table, 10)
    table.history.commit(0, 10, b"ten", 1)
    table.push_rows(rows(2, 1, 2))
    cut(table, 20)
    table.push_rows(rows(3, 1, 2, 3))
    table.history.restore(10, 1, DISPATCHER)
    assert versions(table, 1, 2, 3) == [1, 0, 0]
    assert table.history.record.iterations == (10,)


def test_a_commit_drops_the_way_back_to_older_cuts(table):
    for checkpoint in (10, 20):
        cut(table, checkpoint)
        table.blobs.put_part(checkpoint, "engine", b"x")
    table.history.commit(0, 20, b"m", 1)
    with pytest.raises(FailedPrecondition, match="cannot go back to checkpoint 10"):
        table.history.restore(10, 1, DISPATCHER)
    assert table.blobs.get_part(10, "engine") is None
    assert table.blobs.get_part(20, "engine") == b"x"


def test_a_commit_that_comes_late_takes_back_nothing(table):
    """As one that was repeated, and whose first attempt was held up on its way."""
    for checkpoint in (10, 20):
        cut(table, checkpoint)
        table.history.commit(0, checkpoint, b"m", 2)
    with pytest.raises(FailedPrecondition, match="checkpoint 10 of table 't' comes too late, checkpoint 20 is"):
        table.history.commit(0, 10, b"m", 2)
    assert [each.iteration for each in table.history.record.committed] == [10, 20]
    table.history.commit(0, 20, b"end", 2, finished=True)
    with pytest.raises(FailedPrecondition, match="finished"):
        table.history.commit(0, 20, b"m", 2)
    assert table.history.record.last.manifest == b"end"


def test_checkpoint_zero_is_the_empty_table(table):
    table.push_rows(rows(1, 1, 2))
    cut(table, 10)
    table.push_rows(rows(2, 1, 2))
    table.history.restore(0, 1, DISPATCHER)
    assert table.stored_rows() == 0


def test_requests_of_another_epoch_are_refused(table):
    table.history.restore(0, 3, DISPATCHER)
    ids = np.array([1], np.uint64)
    for epoch in (0, 2, 4):
        for request in (
            lambda epoch=epoch: table.push_rows(rows(1, 1), epoch),
            lambda epoch=epoch: table.push_gradients(gradient(0), epoch),
            lambda epoch=epoch: table.check_pull(ids, np.array([0]), epoch),
            lambda epoch=epoch: table.history.cut(epoch, 10, 0, ALL),
            lambda epoch=epoch: table.history.commit(epoch, 0, b"", 1),
            lambda epoch=epoch: table.history.put_part(10, "engine", b"x", epoch),
            lambda epoch=epoch: table.put_dense(b"x", epoch),
        ):
            with pytest.raises(StaleEpoch, match="epoch 3"):
                request()
    assert table.stored_rows() == 0
    with pytest.raises(StaleEpoch):
        table.history.restore(0, 2, DISPATCHER)
    table.history.restore(0, 3, DISPATCHER)  # repeated


def test_cuts_are_checked(table):
    with pytest.raises(InvalidArgument, match="not among"):
        table.history.cut(0, 10, 2, ALL)
    with pytest.raises(InvalidArgument, match="checkpoint is 0"):
        table.history.cut(0, 0, 0, ALL)
    cut(table, 10)
    with pytest.raises(FailedPrecondition, match="too late"):
        table.history.cut(0, 9, 0, ALL)


def test_history_outlives_its_table_object(table, store):
    cut(table, 10)
    table.history.commit(0, 10, b"m", 1)
    table.push_rows(rows(1, 1))
    assert not table.history.cut(0, 20, 1, ALL)
    again = Table(SPEC, store, Shard())
    assert again.history.record == HistoryRecord(0, (Cut(10, 0, 0),), (Checkpoint(10, b"m"),), 20, 0b10)
    again.push_rows(rows(1, 2))
    again.history.restore(10, 1, DISPATCHER)
    assert again.stored_rows() == 0


def test_a_lock_is_exclusive_only_when_nobody_shares_it_anymore():
    lock, order = SharedLock(), []

    def take():
        with lock.exclusive():
            order.append("exclusive")

    with lock.shared(), lock.shared():
        taking = threading.Thread(target=take)
        taking.start()
        order.append("shared")
    taking.join()
    with lock.shared():
        order.append("after")
    assert order == ["shared", "exclusive", "after"]


def test_the_last_checkpoints_stay_with_the_way_back(table):
    for checkpoint in (10, 20, 30, 40):
        table.push_rows(rows(checkpoint, 1, checkpoint))
        cut(table, checkpoint)
        table.blobs.put_part(checkpoint, "engine", b"x")
        table.history.commit(0, checkpoint, b"%d" % checkpoint, 3)
    assert [each.iteration for each in table.history.record.committed] == [20, 30, 40]
    with pytest.raises(FailedPrecondition, match="cannot go back to checkpoint 10"):
        table.history.restore(10, 1, DISPATCHER)
    assert table.blobs.get_part(10, "engine") is None
    table.history.restore(20, 1, DISPATCHER)
    assert versions(table, 1, 10, 20, 30) == [20, 10, 20, 0]
    assert table.history.record.last == Checkpoint(20, b"20")
    assert table.blobs.get_part(30, "engine") is None
    table.push_rows(rows(21, 1), epoch=1)
    cut(table, 30, epoch=1)
    table.history.commit(1, 30, b"again", 3)
    table.history.restore(20, 2, DISPATCHER)
    assert versions(table, 1) == [20]


def test_at_least_one_checkpoint_is_kept(table):
    with pytest.raises(InvalidArgument, match="keep is 0"):
        table.history.commit(0, 0, b"m", 0)


def test_parts_of_a_checkpoint_that_never_came_to_be_go_with_its_epoch(table):
    cut(table, 10)
    table.history.commit(0, 10, b"m", 1)
    table.blobs.put_part(10, "engine", b"x")
    table.blobs.put_part(17, "dense", b"x")
    table.history.restore(10, 1, DISPATCHER)
    assert table.blobs.get_part(17, "dense") is None
    assert table.blobs.get_part(10, "engine") == b"x"


def test_what_a_crash_left_of_older_cuts_is_dropped_when_the_table_is_taken_up(table, store, monkeypatch):
    for checkpoint in (10, 20):
        cut(table, checkpoint)
        table.push_rows(rows(checkpoint, 1))
    drop = store.cuts.drop
    monkeypatch.setattr(store.cuts, "drop", lambda cut: (_ for _ in ()).throw(RuntimeError("died")))
    with pytest.raises(RuntimeError):
        table.history.commit(0, 20, b"m", 1)
    monkeypatch.setattr(store.cuts, "drop", drop)
    assert set(store.rows.pre_images) == {10, 20}
    Table(SPEC, store, Shard())
    assert set(store.rows.pre_images) == {20}


@pytest.mark.parametrize(
    "damage", [lambda d: d[:-9], lambda d: d.replace(b"10", b"12"), lambda _: b"{}", lambda _: b""]
)
def test_a_damaged_record_is_refused(damage):
    data = HistoryRecord(3, (Cut(10, 5, 7),), (Checkpoint(10, b"m"),)).encode()
    assert HistoryRecord.decode(data) == HistoryRecord(3, (Cut(10, 5, 7),), (Checkpoint(10, b"m"),))
    with pytest.raises(FailedPrecondition, match="damaged"):
        HistoryRecord.decode(damage(data))


def test_a_record_of_an_earlier_version_is_read():
    """An old record has neither the checkpoint to which its epoch returned nor its dispatcher."""
    data = (
        b'{"record": {"epoch": 3, "cuts": [{"iteration": 10, "rows": 5, "trainings": 7}], "committed": [{'
        b'"iteration": 10, "manifest": "bQ=="}], "arriving": 0, "arrived": 0, "outdated_cuts": [], "finis'
        b'hed": false, "saved": null}, "sha256": "47135c420a750b412c2053107db4fdabe51b02ec7b529d3965f8abf'
        b'fb151cc53"}'
    )
    record = HistoryRecord.decode(data)
    assert record == HistoryRecord(3, (Cut(10, 5, 7),), (Checkpoint(10, b"m"),))
    assert not record.is_of_another(DISPATCHER), "nobody's, like one that the server has begun by itself"


def test_a_record_is_read_as_it_was_written():
    record = HistoryRecord(3, restored=10, claimant=bytes(range(16)), claimed=3)
    assert HistoryRecord.decode(record.encode()) == record
    assert resharded([record, replace(record, claimant=DISPATCHER)], 1) == HistoryRecord(
        4, claimant=record.claimant, claimed=3
    )


def refused_when_finished(table, epoch=0):
    """Every write to the table, each of which must be refused."""
    for write in (
        lambda: table.push_rows(rows(2, 5), epoch),
        lambda: table.push_gradients(gradient(0), epoch),
        lambda: table.forget(np.array([5], np.uint64), 2**30, epoch),
        lambda: table.put_dense(b"other", epoch),
        lambda: table.history.put_part(40, "dense", b"other", epoch),
        lambda: table.history.cut(epoch, 40, 0, ALL),
    ):
        with pytest.raises(
            FailedPrecondition, match=r"table 't' is finished: .* \(--table\), .*esd checkpoint restore"
        ):
            write()


def test_the_last_commit_makes_a_table_read_only(table, store):
    table.push_rows(rows(1, 5))
    table.put_dense(b"model")
    cut(table, 20)
    table.history.commit(0, 20, b"m", 1, finished=True)
    refused_when_finished(table)
    again = Table(SPEC, store, Shard())
    refused_when_finished(again)
    assert again.history.cut(0, 20, 0, ALL), "the repetition of what is done is no write"
    again.history.commit(0, 20, b"m", 1, finished=True)
    again.samples.trim(100, 0)
    again.history.begin_epoch(3, DISPATCHER, takes_over=True)
    refused_when_finished(again, epoch=3)
    assert versions(again, 5) == [1]
    assert again.blobs.get_dense() == b"model"


@pytest.mark.parametrize("checkpoint", [20, 10, 0])
def test_going_back_lets_training_go_on(table, checkpoint):
    for each in (10, 20):
        table.push_rows(rows(each, 5))
        cut(table, each)
        table.history.commit(0, each, b"m", 2, finished=each == 20)
    table.history.restore(checkpoint, 1, DISPATCHER)
    assert versions(table, 5) == [checkpoint]
    table.push_rows(rows(checkpoint + 1, 5), 1)
    table.put_dense(b"other", 1)
    assert versions(table, 5) == [checkpoint + 1]


def test_a_job_without_checkpoints_ends_when_all_its_workers_say_so(table, store):
    table.push_rows(rows(1, 5))
    assert not table.history.cut(0, 20, 0, ALL, last=True)
    table.push_rows(rows(1, 6))
    assert table.history.cut(0, 20, 1, ALL, last=True)
    assert table.history.cut(0, 20, 1, ALL, last=True)  # repeated
    refused_when_finished(Table(SPEC, store, Shard()))
    assert table.history.record.cuts == (), "nobody goes back there"


def test_a_finished_table_of_another_number_of_shards_is_finished():
    done, open_ = HistoryRecord(3, finished=True), HistoryRecord(3)
    assert resharded([done, done], 0).finished
    assert not resharded([done, open_], 0).finished
