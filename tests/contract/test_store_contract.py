"""The contract of every store, over memory, a checkpoint directory, an object store, one Redis and a Redis Cluster."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from esd.ps_server.core.gradients import Arrival
from esd.ps_server.core.history_record import HistoryRecord
from esd.ps_server.core.shard import Shard
from esd.ps_server.core.store import StoreLost
from esd.ps_server.core.tables import Tables
from esd.services.domain.batches import LogEntry
from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.ids import shard_of
from esd.services.domain.rows import RowBlock
from esd.services.domain.tables import OptimizerSpec, TableSpec
from tests.support.stores import (
    ALL_BITS,
    DISPATCHER,
    SPEC,
    as_dict,
    assert_rows,
    blocks_as_dict,
    gradients_of,
    open_store_at,
    open_url,
    rows_of,
)


def test_rows_never_written_have_version_zero(table):
    ids = np.array([0, 1, ALL_BITS], np.uint64)
    assert table.rows.versions(ids).tolist() == [0, 0, 0]
    block = table.rows.read(ids)
    assert block.versions.tolist() == [0, 0, 0]
    assert block.rows.shape == (3, SPEC.row_width)
    assert not block.rows.any()
    block.rows[:] = 1  # the reader's own
    assert len(table.rows) == 0


@pytest.mark.parametrize("count", [0, 1, 3000])
def test_rows_are_read_as_written_in_the_order_asked(table, rng, count):
    ids = rng.permutation(np.unique(rng.integers(0, 2**64, count, dtype=np.uint64)))
    written = rows_of(rng, ids, 3)
    assert table.rows.write_newer(written).tolist() == [True] * len(ids)
    order = rng.permutation(len(ids))
    assert_rows(table.rows.read(ids[order]), written[order])
    assert table.rows.versions(ids[order]).tolist() == [3] * len(ids)
    assert len(table.rows) == len(ids)


@pytest.mark.parametrize("count", [1, 2])
def test_what_is_read_may_be_changed(table, rng, count):
    """As a pull does that waits for some of its rows."""
    ids = np.arange(count, dtype=np.uint64)
    table.rows.write_newer(rows_of(rng, ids, 1))
    read = table.rows.read(ids)
    read.versions[:] = 7
    read.rows[:] = 0.0
    assert table.rows.read(ids).versions.tolist() == [1] * count


def test_ids_and_values_of_any_bytes_are_kept(table):
    ids = np.array([0, 10, 13, 0x7D7B7D7B7D7B7D7B, ALL_BITS], np.uint64)  # newlines, braces, all ones
    rows = np.zeros((5, SPEC.row_width), np.float32)
    rows[1], rows[2] = -0.0, np.float32(1e-45)
    table.rows.write_newer(RowBlock(ids, np.full(5, 2**53 - 1), rows))
    read = table.rows.read(ids)
    assert read.rows.tobytes() == rows.tobytes()
    assert read.versions.tolist() == [2**53 - 1] * 5


def test_only_newer_rows_replace_stored_ones(table, rng):
    first = rows_of(rng, [1, 2, 3], 5)
    table.rows.write_newer(first)
    other = rows_of(rng, [3, 4, 1, 2], 5)
    mixed = RowBlock(other.ids, np.array([300, 1, 5, 4]), other.rows)
    assert table.rows.write_newer(mixed).tolist() == [True, True, False, False]
    assert_rows(table.rows.read(first.ids[:2]), first[:2])
    assert_rows(table.rows.read(other.ids[:2]), mixed[:2])
    assert len(table.rows) == 4


def test_a_scan_gives_every_row_once(table, rng):
    written = rows_of(rng, np.unique(rng.integers(0, 2**64, 2500, dtype=np.uint64)), 2)
    table.rows.write_newer(written)
    blocks = list(table.rows.scan())
    ids = np.concatenate([block.ids for block in blocks])
    order = np.argsort(ids)
    scanned = RowBlock(ids, *(np.concatenate([getattr(b, name) for b in blocks]) for name in ("versions", "rows")))
    assert_rows(scanned[order], written)
    assert max(block.rows.nbytes for block in blocks) <= 2**20


def test_tables_do_not_see_each_others_rows(store, table, rng):
    other_spec = TableSpec("clicks-1_a2", 6, SPEC.optimizer, seed=1, init_scale=1)
    store.create(other_spec)
    other = store.open(other_spec)
    table.rows.write_newer(rows_of(rng, [1, 2], 1))
    table.partials.add(gradients_of(rng, [7], 0))
    table.blobs.put_dense(b"mine")
    assert len(other.rows) == len(other.partials) == 0
    assert list(other.rows.scan()) == []
    assert other.blobs.get_dense() is None
    assert other.rows.versions(np.array([1, 7], np.uint64)).tolist() == [0, 0]


def test_shards_do_not_see_each_others_rows(url, rng):
    stores = [open_url(url, Shard(index, 2)) for index in range(2)]
    for store in stores:
        store.create(SPEC)
    one, other = (store.open(SPEC) for store in stores)
    ids = np.arange(100, dtype=np.uint64)
    ids = ids[shard_of(ids, 2) == 0]
    one.rows.write_newer(rows_of(rng, ids, 1))
    assert (len(one.rows), len(other.rows)) == (len(ids), 0)
    assert sum(map(len, one.rows.scan())) == len(ids)
    assert list(other.rows.scan()) == []
    for store in stores:
        store.close()


def test_the_first_specification_of_a_table_holds(store):
    assert store.create(SPEC) == (SPEC, True)
    assert store.create(SPEC) == (SPEC, False)
    other = TableSpec(SPEC.name, 7, OptimizerSpec(), seed=1, init_scale=1)
    assert store.create(other) == (SPEC, False)
    assert store.tables() == [SPEC]


def test_dense_parameters_are_replaced_whole(table):
    assert table.blobs.get_dense() is None
    table.blobs.put_dense(bytes(range(256)) * 9000)
    assert table.blobs.get_dense() == bytes(range(256)) * 9000
    long = bytes(range(256)) * (2**18 + 1)  # longer than a piece, of which a long one is made in Redis
    table.blobs.put_dense(long)
    assert table.blobs.get_dense() == long
    assert table.blobs.checkpoints() == set()
    table.blobs.put_dense(long[: 2**26])
    assert table.blobs.get_dense() == long[: 2**26]
    table.blobs.put_dense(b"")
    assert table.blobs.get_dense() == b""


@pytest.mark.parametrize("workers", [(2, 0, 1), (127, 0, 70)], ids=["few workers", "many workers"])
def test_partial_gradients_are_kept_summed_and_discarded(table, rng, workers):
    ids = rng.permutation(np.unique(rng.integers(0, 2**64, 700, dtype=np.uint64)))
    everyone = sum(1 << worker for worker in workers)
    first, second, last = (gradients_of(rng, ids, worker, contributors=everyone) for worker in workers)
    assert set(table.partials.inspect(first)) == {Arrival.WAITS}
    table.partials.add(first)
    table.partials.add(second)
    assert set(table.partials.inspect(second)) == {Arrival.REPEATED}
    assert set(table.partials.inspect(last)) == {Arrival.COMPLETES}
    for target, others in ((2, everyone), (1, everyone | 1 << 63)):
        other = gradients_of(rng, ids, workers[-1], target, others)
        assert set(table.partials.inspect(other)) == {Arrival.CONFLICT}
    assert len(table.partials) == 2 * len(ids)
    np.testing.assert_array_equal(table.partials.sum(last), (second.gradients + last.gradients) + first.gradients)
    assert [column.tolist() for column in table.partials.splits(ids[:2])] == [
        [1, 1],
        2 * [[everyone % 2**64, everyone >> 64]],
        [9, 9],
    ]
    table.partials.discard(ids[1:])
    assert len(table.partials) == 2
    assert [column.tolist() for column in table.partials.splits(ids[1:2])] == [[0], [[0, 0]], [0]]


def test_concurrent_writers_leave_the_newest_rows(table, rng):
    ids = rng.choice(2**40, 600, replace=False).astype(np.uint64)
    blocks = [rows_of(rng, ids, version) for version in range(1, 13)]
    shuffled = [blocks[i] for i in rng.permutation(12)]
    with ThreadPoolExecutor(4) as pool:
        stored = sum(mask.astype(int) for mask in pool.map(table.rows.write_newer, shuffled))
    assert (stored >= 1).all()
    assert_rows(table.rows.read(ids), blocks[-1])
    assert len(table.rows) == 600


@pytest.mark.parametrize("workers", [(0, 2, 1), (0, 90, 70)], ids=["few workers", "many workers"])
@pytest.mark.parametrize("url", ["redis", "redis+cluster"], indirect=True)
def test_redis_keeps_everything_for_the_next_process(url, store, table, rng, workers):
    everyone = sum(1 << worker for worker in workers)
    rows = rows_of(rng, rng.choice(2**40, 1200, replace=False), 4)
    table.rows.write_newer(rows)
    pending = [gradients_of(rng, rows.ids, worker, 5, everyone) for worker in workers[:2]]
    for block in pending:
        table.partials.add(block)
    table.blobs.put_dense(b"dense")
    store.close()

    again = open_url(url)
    assert again.tables() == [SPEC]
    reopened = again.open(SPEC)
    reopened.partials.load()
    assert_rows(reopened.rows.read(rows.ids), rows)
    assert len(reopened.rows) == 1200
    assert reopened.blobs.get_dense() == b"dense"
    assert len(reopened.partials) == 2400
    last = gradients_of(rng, rows.ids, workers[2], 5, everyone)
    assert set(reopened.partials.inspect(last)) == {Arrival.COMPLETES}
    np.testing.assert_array_equal(
        reopened.partials.sum(last), (pending[0].gradients + last.gradients) + pending[1].gradients
    )
    reopened.partials.discard(rows.ids)
    again.close()

    third = open_url(url)
    empty = third.open(SPEC)
    empty.partials.load()
    assert len(empty.partials) == 0
    third.close()


@pytest.mark.parametrize("url", ["redis"], indirect=True)
def test_gradients_of_versions_already_made_are_not_taken_up(url, store, table, rng):
    table.partials.add(gradients_of(rng, [1, 2], 0, target=5))
    table.rows.write_newer(rows_of(rng, [1], 5))  # the process died before it discarded the gradient
    for _ in range(2):
        reopened = store.open(SPEC)
        reopened.partials.load()
        assert reopened.partials.splits(np.array([1, 2], np.uint64)).targets.tolist() == [0, 5]
        assert len(reopened.partials) == 1


def entries_of(log):
    return [(entry.position, entry.samples, entry.batch) for entry in log.read()]


def test_a_log_is_read_as_it_was_written(table):
    log = table.log
    assert log.last() is None
    assert entries_of(log) == []
    # More than Redis sends at a time, and positions that do not sort as text.
    written = [LogEntry(3 * i, 3, bytes([i]) * (i + 1)) for i in range(40)]
    for entry in written:
        log.append(entry)
    assert entries_of(log) == [(entry.position, 3, entry.batch) for entry in written]
    assert (log.last().position, log.last().samples) == (117, 3)


def test_a_log_is_trimmed_by_whole_entries_and_keeps_the_mark_of_its_end(table):
    log = table.log
    for position in (0, 4, 8):
        log.append(LogEntry(position, 4, b"batch"))
    log.trim(0)
    log.trim(7)
    assert entries_of(log) == [(4, 4, b"batch"), (8, 4, b"batch")]
    log.append(LogEntry(12, 0))
    log.trim(12)
    assert entries_of(log) == [(12, 0, b"")]
    assert log.last().closes
    log.clear()
    assert log.last() is None
    log.append(LogEntry(5, 1, b"anew"))
    assert entries_of(log) == [(5, 1, b"anew")]


def test_an_empty_stream_may_end(table):
    table.log.append(LogEntry(0, 0))
    assert entries_of(table.log) == [(0, 0, b"")]


def test_a_durable_log_is_there_for_the_next_process(url, store, table):
    table.log.append(LogEntry(7, 2, b"xy"))
    table.log.append(LogEntry(9, 0))
    assert table.log.durable == (url != "memory")
    store.close()
    if url != "memory":
        again = open_url(url)
        assert entries_of(again.open(SPEC).log) == [(7, 2, b"xy"), (9, 0, b"")]
        again.close()


@pytest.mark.parametrize("url", ["redis", "redis+cluster"], indirect=True)
def test_servers_may_begin_on_an_empty_redis_at_the_same_time(url):
    with ThreadPoolExecutor(4) as pool:
        stores = list(pool.map(lambda index: open_url(url, Shard(index, 4)), range(4)))
    for store in stores:
        store.ping()
        store.close()


@pytest.mark.parametrize("url", ["redis", "redis+cluster"], indirect=True)
def test_damaged_samples_dense_parameters_and_gradients_are_named(store, table, rng):
    table.log.append(LogEntry(0, 5, b"batch"))
    table.blobs.put_dense(b"dense")
    table.partials.add(gradients_of(rng, [7], 2))
    damage_everything(store)
    for read, text in (
        (lambda: list(table.log.read()), "entry 5-0 of the sample log .* is damaged.*esd checkpoint restore"),
        (table.log.last, "entry 5-0 of the sample log .* is damaged"),
        (table.blobs.get_dense, "d:clicks-1_a in Redis .* is damaged"),
        (store.open(SPEC).partials.load, "partial gradient of worker 2 for row 7 in Redis .* is damaged"),
    ):
        with pytest.raises(FailedPrecondition, match=text):
            read()


def damage_everything(store):
    """Changes one byte of all that is stored as one value."""
    for server in store._redis.servers():
        for key in server.scan_iter("d:*"):
            server.setrange(key, 18, b"X")
        for key in server.scan_iter("s0:*"):
            ((name, fields),) = server.xrange(key)
            server.delete(key)
            server.xadd(key, fields | {b"batch": fields[b"batch"][:-1] + b"X"}, name)
        for key in server.scan_iter("g:*"):
            for field, value in server.hgetall(key).items():
                server.hset(key, field, value[:30] + b"X" + value[31:])


class Shards:
    """All parameter servers of a table, as started anew on a store."""

    def __init__(self, url, count):
        self.tables = []
        self.stores = []
        for index in range(count):
            shard = Shard(index, count)
            self.stores.append(open_url(url, shard))
            tables = Tables(self.stores[-1], shard)
            tables.create(SPEC)
            self.tables.append(tables.get(SPEC.name))

    def close(self):
        for store in self.stores:
            store.close()

    def train(self, rng, version):
        block = rows_of(rng, np.arange(300), version)
        for index, table in enumerate(self.tables):
            mine = block[shard_of(block.ids, len(self.tables)) == index]
            table.push_rows(mine, table.history.record.epoch)
        return blocks_as_dict([block])

    def checkpoint(self, cut, *, finished=False):
        for index, table in enumerate(self.tables):
            epoch = table.history.record.epoch
            assert table.history.cut(epoch, cut, 0, 1)
            table.history.save(epoch, cut)
            table.history.commit(epoch, cut, b"" if index else b"%d" % cut, 2, finished=finished)

    def restore(self, cut):
        epoch = max(table.history.record.epoch for table in self.tables) + 1
        for table in self.tables:
            table.history.restore(cut, epoch, DISPATCHER)
        return {key: value for table in self.tables for key, value in as_dict(table).items()}


@pytest.mark.parametrize("url", ["directory", "objects", "redis", "redis+cluster"], indirect=True)
def test_a_finished_table_is_read_only_after_a_restart_until_it_goes_back(url, rng):
    shards = Shards(url, 2)
    expected = shards.train(rng, 10)
    shards.checkpoint(10, finished=True)
    shards.close()
    shards = Shards(url, 2)
    with pytest.raises(FailedPrecondition, match="is finished"):
        shards.train(rng, 11)
    assert shards.restore(10) == expected
    shards.train(rng, 11)
    shards.close()


@pytest.mark.parametrize("url", ["directory", "redis", "redis+cluster"], indirect=True)
@pytest.mark.parametrize(("before", "after"), [(1, 3), (4, 2)])
def test_another_number_of_shards_finds_every_row(url, rng, before, after):
    """Shards train, take a checkpoint and go on; others take over and go back to it; then the first ones once more."""
    shards = Shards(url, before)
    for count, cut in ((after, 10), (before, 20), (after, 30)):
        expected = shards.train(rng, cut)
        shards.checkpoint(cut)
        shards.train(rng, cut + 1)
        shards.close()
        shards = Shards(url, count)
        assert shards.tables[0].history.record.last.manifest == b"%d" % cut
        assert shards.restore(cut) == expected
        assert sum(table.stored_rows() for table in shards.tables) == 300
    shards.close()


@pytest.mark.parametrize("url", ["redis", "redis+cluster"], indirect=True)
def test_a_server_of_the_number_of_shards_before_is_refused(url, store, table):
    table.history.save(HistoryRecord().encode())
    expire_claim(store)
    others = [open_url(url, Shard(index, 2)) for index in reversed(range(2))]
    assert [HistoryRecord.decode(other.open(SPEC).history.load()).epoch for other in others] == [1, 1]
    for other in others:
        other.close()
    with pytest.raises(StoreLost, match="lost its shard"):
        table.history.save(HistoryRecord().encode())


def expire_claim(store):
    """Makes the claim of shard 0 as old as if its server had hung for long."""
    store._redis.execute([b"esd:servers"], [(b"HSET", b"esd:servers", b"0:until", 0)])


def write_everything(table, rng, version):
    """One call of every method that writes, by its name."""
    rows = rows_of(rng, np.arange(200), version)
    return {
        "rows": lambda: table.rows.write_newer(rows),
        "forget": lambda: table.rows.forget_older(rows.ids, 2**30),
        "clear": table.rows.clear,
        "partials": lambda: table.partials.add(gradients_of(rng, rows.ids, 0, target=version + 1)),
        "discard": lambda: table.partials.discard(rows.ids),
        "no partials": table.partials.clear,
        "put back": lambda: table.cuts.put_back([5]),
        "drop": lambda: table.cuts.drop(5),
        "record": lambda: table.history.save(HistoryRecord(epoch=version).encode()),
        "part": lambda: table.blobs.put_part(1, "engine", b"%d" % version),
        "no part": lambda: table.blobs.drop_parts(5),
        "dense": lambda: table.blobs.put_dense(b"%d" % version),
        "log": lambda: table.log.append(LogEntry(version, 1, b"x")),
        "trim": lambda: table.log.trim(2**40),
        "no log": table.log.clear,
    }


@pytest.mark.parametrize("url", ["redis", "redis+cluster"], indirect=True)
def test_a_server_that_wakes_up_after_another_has_taken_over_can_write_nothing(url, store, table, rng):
    table.cuts.keep_pre_images(5)
    table.partials.add(gradients_of(rng, np.arange(200), 1, target=4))
    expire_claim(store)
    successor = open_url(url)
    taken = successor.open(SPEC)
    taken.partials.load()
    assert len(taken.partials) == 200
    taken.cuts.keep_pre_images(5)
    for name in ("rows", "partials", "part", "dense", "record", "log"):
        write_everything(taken, rng, 3)[name]()
    taken.blobs.put_part(5, "engine", b"of the cut")
    expected = everything(successor)

    for name, write in write_everything(table, rng, 9).items():
        with pytest.raises(StoreLost, match=r"lost its shard of Redis .* another one has taken over"):
            write()
        assert everything(successor) == expected, name
    for refused in (store.ping, store.release, lambda: store.create(replace(SPEC, name="other"))):
        with pytest.raises(StoreLost, match="lost its shard"):
            refused()
    assert successor.tables() == [SPEC]
    successor.ping()
    successor.close()


def everything(store):
    """All that Redis holds apart from signs of life, byte by byte."""
    found = {}
    for server in store._redis.servers():
        keys = [key for key in server.scan_iter() if not key.startswith(b"esd:")]
        found |= {key: server.dump(key) for key in keys}
    return found


@pytest.mark.parametrize("url", ["redis", "redis+cluster"], indirect=True)
def test_a_claim_that_is_renewed_is_not_taken_over(url, store):
    """The newcomer sees within seconds that the other lives, and need not wait its whole lifetime out."""
    with ThreadPoolExecutor(1) as pool:
        newcomer = pool.submit(open_url, url)
        while not newcomer.done():
            store.ping()
        with pytest.raises(FailedPrecondition, match="parameter server 0 of 1 runs on Redis at"):
            newcomer.result()
    store.ping()


@pytest.mark.parametrize("url", ["directory", "objects", "redis", "redis+cluster"], indirect=True)
def test_a_server_of_another_number_of_shards_is_refused_while_one_lives(url, store):
    with pytest.raises(
        FailedPrecondition, match=r"another process serves shard-0-of-1|parameter server 0 of 1 runs on"
    ):
        open_store_at(url, Shard(1, 2)).claim(exclusive=True)
