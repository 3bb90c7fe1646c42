"""Redis is not asked for rows that it cannot have: the server that has begun their table has not written them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from esd.ps_server.core.store import StoreLost
from esd.ps_server.stores.redis.claim import CLAIMS
from tests.support.stores import SPEC, assert_rows, open_url, rows_of

pytestmark = pytest.mark.parametrize("url", ["redis", "redis+cluster"], indirect=True)


class Counted:
    """A connection that counts the hashes of rows that commands name."""

    def __init__(self, redis) -> None:
        self.spans_partitions = redis.spans_partitions
        self.hashes = 0
        self._redis = redis

    def execute(self, keys: Sequence[bytes], commands: Sequence[tuple]) -> list:
        self.hashes += sum(isinstance(word, bytes) and word[:3] == b"e:{" for command in commands for word in command)
        return self._redis.execute(keys, commands)


@pytest.fixture
def counted(store, table):
    table.rows._redis = Counted(store._redis)
    return table.rows._redis


def test_redis_is_asked_only_for_rows_that_were_written(table, counted, rng):
    ids = rng.integers(0, 2**64, 400, dtype=np.uint64)
    absent = table.rows.read(ids)
    assert (absent.ids.tolist(), absent.versions.any(), absent.rows.any()) == (ids.tolist(), False, False)
    assert not table.rows.versions(ids).any()
    assert counted.hashes <= 8, "more than the few ids that the filter takes for known"
    first = rows_of(rng, ids[::2], 1)
    table.rows.write_newer(first)
    both = table.rows.read(ids)
    assert_rows(both[both.versions > 0], first)
    assert not both.rows[1::2].any()
    assert table.rows.versions(ids).tolist() == [1, 0] * 200


def test_rows_that_came_back_to_a_cut_are_found(table, rng):
    ids = rng.integers(0, 2**64, 100, dtype=np.uint64)
    first = rows_of(rng, ids[:50], 1)
    table.rows.write_newer(first)
    table.cuts.keep_pre_images(3)
    assert table.rows.forget_older(ids, 2**30) == 50
    table.rows.write_newer(rows_of(rng, ids[50:], 1))
    table.cuts.put_back([3])
    assert_rows(table.rows.read(ids[:50]), first)
    assert not table.rows.versions(ids[50:]).any()


def test_a_table_that_an_earlier_server_has_begun_is_read(url, store, table, rng):
    first = rows_of(rng, rng.integers(0, 2**64, 300, dtype=np.uint64), 1)
    table.rows.write_newer(first)
    store.close()
    successor = open_url(url)
    assert not successor.create(SPEC)[1]
    assert_rows(successor.open(SPEC).rows.read(first.ids), first)
    assert (successor.open(SPEC).rows.versions(first.ids) == 1).all()
    successor.close()


def test_a_server_that_has_lost_its_shard_takes_no_row_for_absent(url, store, table, rng):
    """Its successor may have written them since."""
    first = rows_of(rng, rng.integers(0, 2**64, 300, dtype=np.uint64), 1)
    store._redis.execute([CLAIMS], [(b"HSET", CLAIMS, b"0:until", 0)])
    successor = open_url(url)
    successor.open(SPEC).rows.write_newer(first)
    for read in (table.rows.read, table.rows.versions):
        with pytest.raises(StoreLost, match="lost its shard"):
            read(first.ids)
    successor.close()
