"""Rows in Redis: fields that rows share, writes that are interrupted, and the format of earlier versions."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
from redis import Redis
from redis.cluster import RedisCluster

from esd.native.rows import addresses, checksums, ids_at
from esd.ps_server.core.store import StoreLost
from esd.ps_server.stores.by_url import open_store
from esd.ps_server.stores.redis import earlier_format, layout
from esd.services.domain.errors import FailedPrecondition, Unavailable
from esd.services.domain.ids import partition_of
from esd.services.domain.rows import RowBlock
from tests.support.stores import ALONE, SPEC, as_dict, assert_rows, blocks_as_dict, open_store_at, open_url, rows_of

LIFE = 2**30

pytestmark = pytest.mark.parametrize("url", ["redis", "redis+cluster"], indirect=True)


def ids_of_few_fields(rng: np.random.Generator, fields: int, rows: int) -> np.ndarray:
    """Ids of which `rows` each share a field, in any order."""
    places, names = addresses(rng.integers(0, 2**64, fields, dtype=np.uint64))
    lasts = rng.permuted(np.tile(np.arange(256, dtype=np.uint8), (fields, 1)), axis=1)[:, :rows]
    groups = [
        ids_at(int(place), [name[:6].tobytes() + bytes([last]) for last in mine])
        for place, name, mine in zip(places, names, lasts, strict=True)
    ]
    return rng.permutation(np.concatenate(groups))


class Pair:
    """A table in Redis and one in memory, to which the same happens."""

    def __init__(self, table, rng: np.random.Generator) -> None:
        memory = open_store("memory", ALONE, 1.0)
        memory.create(SPEC)
        self.tables = (table, memory.open(SPEC))
        self.ids = np.concatenate([ids_of_few_fields(rng, 40, 3), rng.integers(0, 2**64, 120, dtype=np.uint64)])
        self.cuts: list[int] = []
        self._rng = rng

    def write(self) -> None:
        some = self._rng.choice(self.ids, self._rng.integers(1, 200), replace=False)
        versions = self.tables[1].rows.versions(some) + self._rng.integers(-1, 3, len(some))
        versions += self._rng.choice([0, 0, 0, 2**22, LIFE, 3 * LIFE], len(some))
        block = RowBlock(some, versions, rows_of(self._rng, some, 1).rows)[versions > 0]
        stored, expected = (table.rows.write_newer(block) for table in self.tables)
        np.testing.assert_array_equal(stored, expected)

    def forget(self) -> None:
        some, below = self._rng.choice(self.ids, 60, replace=False), int(self._rng.choice([2, LIFE, 2 * LIFE]))
        forgotten, expected = (table.rows.forget_older(some, below) for table in self.tables)
        assert forgotten == expected

    def cut(self) -> None:
        self.cuts.append(self.cuts[-1] + 1 if self.cuts else 1)
        self._keep_pre_images()

    def go_back(self) -> None:
        if self.cuts:
            at = int(self._rng.integers(len(self.cuts)))
            count, expected = (table.cuts.put_back(self.cuts[at:]) for table in self.tables)
            assert count == expected
            del self.cuts[at + 1 :]
            self._keep_pre_images()

    def drop(self) -> None:
        if len(self.cuts) > 1:
            for table in self.tables:
                table.cuts.drop(self.cuts[0])
            del self.cuts[0]

    def look_back(self) -> None:
        if self.cuts:
            at = int(self._rng.integers(len(self.cuts)))
            cut, later = self.cuts[at], self.cuts[at + 1 :]
            some = self._rng.choice(self.ids, 50, replace=False)
            past, expected = (table.cuts.as_of(table.rows.read(some), cut, later) for table in self.tables)
            assert blocks_as_dict([past[past.versions > 0]]) == blocks_as_dict([expected[expected.versions > 0]])
            rows, expected_rows = (blocks_as_dict(table.cuts.rows_at(cut, later)) for table in self.tables)
            assert rows == expected_rows

    def compare(self) -> None:
        table, expected = (table.rows for table in self.tables)
        assert table.totals() == expected.totals()
        np.testing.assert_array_equal(table.versions(self.ids), expected.versions(self.ids))

    def _keep_pre_images(self) -> None:
        for table in self.tables:
            table.cuts.keep_pre_images(self.cuts[-1])


def test_any_sequence_of_changes_leads_where_it_leads_in_memory(store, table, rng):
    """Writes, removals, cuts and returns to them, on rows that share fields and rows that do not."""
    pair = Pair(table, rng)
    steps = [*[pair.write] * 4, pair.forget, pair.cut, pair.go_back, pair.drop, pair.look_back]
    for _ in range(80):
        rng.choice(steps)()
        pair.compare()
    rows, expected = (table.rows for table in pair.tables)
    assert_rows(rows.read(pair.ids), expected.read(pair.ids))
    assert as_dict(rows) == as_dict(expected)
    store.ping()  # compares the counters with the rows


class Interrupted:
    """A connection that does something after a number of commands of each block, which it sends one by one."""

    def __init__(self, redis, after: int, event: Callable[[], None]) -> None:
        self.spans_partitions = redis.spans_partitions
        self.address = redis.address
        self._redis = redis
        self._after = after
        self._event = event

    def execute(self, keys: Sequence[bytes], commands: Sequence[tuple]) -> list:
        replies = []
        for i, (key, command) in enumerate(zip(keys, commands, strict=True)):
            if i == self._after:
                self._event()
            replies += self._redis.execute([key], [command])
        return replies


def die() -> None:
    raise Unavailable("the process has died")


def test_a_push_that_ends_in_its_middle_leaves_whole_rows_right_counters_and_the_way_back(url, store, table, rng):
    ids = rng.integers(0, 2**64, 3000, dtype=np.uint64)
    before = rows_of(rng, ids[:2000], 1)
    table.rows.write_newer(before)
    table.cuts.keep_pre_images(7)
    block = rows_of(rng, ids, 2)
    table.rows.rows_per_script = 500
    table.rows._redis = Interrupted(store._redis, 3, die)
    with pytest.raises(Unavailable):
        table.rows.write_newer(block)
    store.close()

    again = open_url(url)
    reopened = again.open(SPEC)
    again.ping()
    versions = reopened.rows.versions(ids)
    assert {0, 1, 2} == set(versions.tolist())
    stored = reopened.rows.read(ids)
    assert_rows(stored[versions == 2], block[versions == 2])
    assert reopened.rows.totals() == ((versions > 0).sum(), versions.sum())
    reopened.cuts.keep_pre_images(7)
    np.testing.assert_array_equal(reopened.rows.write_newer(block), versions < 2)
    reopened.cuts.put_back([7])
    assert as_dict(reopened.rows) == blocks_as_dict([before])
    again.close()


def test_a_server_that_loses_its_shard_in_the_middle_of_a_push_writes_nothing_more(url, store, table, rng):
    ids = rng.integers(0, 2**64, 3000, dtype=np.uint64)
    first, second = rows_of(rng, ids, 1), rows_of(rng, ids, 2)
    successors = []

    def take_over() -> None:
        store._redis.execute([b"esd:servers"], [(b"HSET", b"esd:servers", b"0:until", 0)])
        successors.append(open_url(url))
        successors[0].open(SPEC).rows.write_newer(first)

    table.rows.rows_per_script = 500
    table.rows._redis = Interrupted(store._redis, 3, take_over)
    with pytest.raises(StoreLost, match="lost its shard"):
        table.rows.write_newer(second)
    rows = successors[0].open(SPEC).rows
    versions = rows.versions(ids)
    assert 0 < (versions == 2).sum() <= 1500  # of three commands
    assert set(versions.tolist()) == {1, 2}
    assert rows.totals() == (3000, versions.sum())
    successors[0].ping()
    successors[0].close()


@contextlib.contextmanager
def client_of(url: str) -> Iterator[Redis]:
    client = RedisCluster.from_url(url.replace("+cluster", "")) if "+cluster" in url else Redis.from_url(url)
    try:
        yield client
    finally:
        client.close()


def in_format_4(url: str, block: RowBlock, pre_images: RowBlock) -> None:
    """Writes rows as earlier versions did, with pre-images at cut 5, into an empty table."""

    def value(row_id: np.uint64, version: int, row: np.ndarray) -> bytes:
        (checksum,) = checksums(np.array([row_id], np.uint64), np.array([version]), row[None])
        return struct.pack("<q", version) + row.tobytes() + struct.pack("<I", checksum)

    def each(block: RowBlock) -> Iterator[tuple[np.uint64, int, int, np.ndarray]]:
        return zip(block.ids, partition_of(block.ids).tolist(), block.versions.tolist(), block.rows, strict=True)

    with client_of(url) as client:
        for row_id, partition, version, row in each(block):
            client.set(
                layout.partition_keys("e", SPEC.name)[partition] + b":" + row_id.tobytes(), value(row_id, version, row)
            )
            counter = layout.partition_keys("n", SPEC.name)[partition]
            client.hincrby(counter, "rows", 1)
            client.hincrby(counter, "trainings", version % LIFE)
        for row_id, partition, version, row in each(pre_images):
            image = value(row_id, version, row) if version else b""
            client.hset(layout.partition_keys("u5", SPEC.name)[partition], row_id.tobytes(), image)
        client.set("esd:layout", '{"format": 4, "partitions": 64}')


@pytest.fixture
def earlier(url, store, table, rng):
    """Rows in format 4 on an otherwise empty store, and the rows as they were at cut 5."""
    del table
    store.close()
    ids = np.concatenate(
        [ids_of_few_fields(rng, 30, 2), np.array([0, 10, 13], np.uint64), np.arange(50, 450, dtype=np.uint64)]
    )
    versions = rng.choice([1, 2**23 - 1, 2**23, LIFE + 3, 2**53 - 1], len(ids))
    rows = RowBlock(ids, versions, rows_of(rng, ids, 1).rows)
    changed = rows_of(rng, ids[::2], 0)
    at_cut = RowBlock(changed.ids, np.where(np.arange(len(changed)) % 3, rows.versions[::2] - 1, 0), changed.rows)
    in_format_4(url, rows, at_cut)
    expected = as_dict_of(rows) | as_dict_of(at_cut)
    return rows, {row: each for row, each in expected.items() if each[0]}


def as_dict_of(block: RowBlock) -> dict[int, tuple[int, bytes]]:
    return blocks_as_dict([block])


def test_a_table_of_format_4_is_converted_with_its_pre_images(url, earlier):
    rows, at_cut = earlier
    store = open_url(url)
    table = store.open(SPEC)
    assert as_dict(table.rows) == as_dict_of(rows)
    assert_rows(table.rows.read(rows.ids), rows)
    assert table.rows.totals() == (len(rows), int((rows.versions % LIFE).sum()))
    assert blocks_as_dict(table.cuts.rows_at(5, [])) == at_cut
    assert table.cuts.put_back([5]) == len(rows.ids[::2])
    assert as_dict(table.rows) == at_cut
    store.ping()
    store.close()
    with client_of(url) as client:
        assert client.get("esd:layout") == b'{"format": 5, "partitions": 64}'
        keys = list(client.scan_iter("*"))
    assert not [
        key for key in keys if key.startswith(b"u") or (key.startswith(b"e:{") and len(key.rpartition(b"}:")[2]) != 1)
    ]


def test_a_conversion_that_was_interrupted_continues(url, earlier, monkeypatch):
    rows, at_cut = earlier

    def half(conversion):
        conversion._found = conversion._found[::2]
        move(conversion)
        die()

    move = earlier_format._Conversion.move_rows
    with monkeypatch.context() as patch:
        patch.setattr(earlier_format._Conversion, "move_rows", half)
        store = open_store_at(url)
        with pytest.raises(Unavailable):
            store.claim(exclusive=False)
        store.close()
    with client_of(url) as client:
        kinds = {len(key.rpartition(b"}:")[2]) for key in client.scan_iter("e:{*")}
    assert kinds == {1, 8}, "rows in both formats"
    store = open_url(url)
    table = store.open(SPEC)
    assert as_dict(table.rows) == as_dict_of(rows)
    assert blocks_as_dict(table.cuts.rows_at(5, [])) == at_cut
    store.ping()
    store.close()


def test_another_format_is_refused_by_its_name(url, store):
    store.close()
    with client_of(url) as client:
        client.set("esd:layout", '{"format": 3, "partitions": 64}')
    with pytest.raises(FailedPrecondition, match=r'holds tables in format b.{"format": 3.*keeps them in format 5'):
        open_store_at(url)


def test_a_push_may_have_more_rows_of_one_hash_than_a_script_passes_to_a_command(store, table, rng):
    names = rng.integers(0, 256, (9000, 7), dtype=np.uint8)
    ids = ids_at(37, [name.tobytes() for name in np.unique(names, axis=0)])
    first, second = rows_of(rng, ids, 1), rows_of(rng, ids, 2)
    assert table.rows.write_newer(first).all()
    table.cuts.keep_pre_images(3)
    assert table.rows.write_newer(second).all()
    assert_rows(table.rows.read(ids), second)
    assert table.rows.forget_older(ids, LIFE) == len(ids)
    assert table.cuts.put_back([3]) == len(ids)
    assert_rows(table.rows.read(ids), first)
    store.ping()


def test_new_hashes_of_short_values_are_tables(url, store, table, rng):
    """Redis would search a list for every field of one."""
    ids = rng.integers(0, 2**64, 500, dtype=np.uint64)
    table.cuts.keep_pre_images(3)
    table.rows.write_newer(rows_of(rng, ids, 1))
    with client_of(url) as client:
        keys = [key for kind in ("e:*", "p3:*") for key in client.scan_iter(kind)]
        assert len(keys) > 400
        assert {client.object("encoding", key) for key in keys} == {b"hashtable"}
        assert sum(client.hlen(key) for key in keys) == 1000


def test_a_damaged_row_is_named(url, store, table, rng):
    ids = np.array([5, 6, 7], np.uint64)
    table.rows.write_newer(rows_of(rng, ids, 1))
    damage(store, 6, lambda record: record[:13] + b"x" + record[14:])
    assert len(table.rows.read(ids[::2])) == 2
    with pytest.raises(FailedPrecondition, match="row 6 in Redis is damaged"):
        table.rows.read(ids)
    with pytest.raises(FailedPrecondition, match="row 6 in Redis is damaged"):
        list(table.cuts.rows_at(10, []))


@pytest.mark.parametrize("size", [1, 3, 7, 20, 35])
def test_a_row_that_is_cut_short_is_named(store, table, rng, size):
    ids = np.array([5, 6, 7], np.uint64)
    table.rows.write_newer(rows_of(rng, ids, 1))
    damage(store, 6, lambda record: record[:size])
    with pytest.raises(FailedPrecondition, match="row 6 in Redis is damaged"):
        table.rows.read(ids)
    newer = rows_of(rng, ids, 2)
    assert table.rows.write_newer(newer).all()


def damage(store, row, change):
    """Changes the record of one row, whose field no other row has."""
    (place,), (name,) = addresses(np.array([row], np.uint64))
    key, field = layout.quarter_keys("e", SPEC.name)[place], name[:6].tobytes()
    (record,) = store._redis.execute([key], [(b"HGET", key, field)])
    store._redis.execute([key], [(b"HSET", key, field, change(record))])
