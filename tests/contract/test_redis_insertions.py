"""New rows that a single Redis gets in transactions, which run only while no shard was claimed meanwhile."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from redis import Redis

from esd.native.rows import addresses, ids_at
from esd.ps_server.core.store import StoreLost
from esd.ps_server.stores.redis.claim import CHANGES, CLAIMS
from esd.ps_server.stores.redis.insertions import Insertions
from esd.ps_server.stores.redis.survey import Survey
from esd.services.domain.errors import StorageUnwritable
from tests.support.stores import SPEC, as_dict, assert_rows, blocks_as_dict, open_url, rows_of

pytestmark = pytest.mark.parametrize("url", ["redis", "valkey"], indirect=True)


@pytest.fixture
def client(url):
    client = Redis.from_url(url)
    yield client
    client.close()


@pytest.fixture
def transactions(store):
    return store._transactions


def new_ids(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.integers(0, 2**64, count, dtype=np.uint64)


def transactions_run(client: Redis) -> int:
    return client.info("commandstats").get("cmdstat_exec", {"calls": 0})["calls"]


def test_new_rows_are_stored_by_a_transaction_and_known_ones_by_a_script(client, store, table, rng):
    first = rows_of(rng, new_ids(rng, 500), 1)
    before = transactions_run(client)
    assert table.rows.write_newer(first).all()
    assert transactions_run(client) == before + 1
    assert_rows(table.rows.read(first.ids), first)
    assert not table.rows.write_newer(first).any()
    second = rows_of(rng, first.ids, 2)
    assert table.rows.write_newer(second).all()
    assert transactions_run(client) == before + 1
    mixed = rows_of(rng, np.concatenate([first.ids[:50], new_ids(rng, 300)]), 2)
    assert table.rows.write_newer(mixed).tolist() == [False] * 50 + [True] * 300
    assert transactions_run(client) == before + 2
    assert table.rows.totals() == (800, 1600)
    store.ping()  # compares the counters with the rows


def test_rows_that_share_a_field_are_not_overwritten(store, table, rng):
    places, names = addresses(new_ids(rng, 100))
    pairs = [
        ids_at(int(place), [name[:6].tobytes() + bytes([last]) for last in (1, 2)])
        for place, name in zip(places, names, strict=True)
    ]
    first, second = (rows_of(rng, ids, 1) for ids in np.array(pairs).T)
    for block in (first, second):
        assert table.rows.write_newer(block).all()
        assert_rows(table.rows.read(block.ids), block)
    store.ping()


def test_a_cut_has_the_rows_that_did_not_exist(table, rng):
    first = rows_of(rng, new_ids(rng, 300), 1)
    table.rows.write_newer(first)
    table.cuts.keep_pre_images(3)
    second = rows_of(rng, new_ids(rng, 300), 1)
    table.rows.write_newer(second)
    table.rows.write_newer(rows_of(rng, second.ids, 2))
    assert blocks_as_dict(table.cuts.rows_at(3, [])) == blocks_as_dict([first])
    assert table.cuts.put_back([3]) == 300
    assert as_dict(table.rows) == blocks_as_dict([first])


def test_a_transaction_that_watched_before_a_claim_writes_nothing(url, client, store, table, rng):
    table.rows.write_newer(rows_of(rng, new_ids(rng, 100), 1))  # leaves a connection that watches
    client.hset(CLAIMS, "0:until", 0)
    successor = open_url(url)
    taken = successor.open(SPEC)
    theirs = rows_of(rng, new_ids(rng, 100), 5)
    taken.rows.write_newer(theirs)
    stored = as_dict(taken.rows)
    with pytest.raises(StoreLost, match="lost its shard"):
        table.rows.write_newer(rows_of(rng, theirs.ids, 1))
    assert as_dict(taken.rows) == stored
    successor.close()


def test_a_transaction_without_an_answer_does_not_run_after_the_rows_were_written_again(
    client, store, table, transactions, rng
):
    """Its commands reach Redis late, over a connection that this server has given up."""
    table.rows.write_newer(rows_of(rng, new_ids(rng, 100), 1))
    (watching,) = transactions._idle
    late, sent = b"", watching.send_packed_command

    def keep(packed) -> None:
        nonlocal late
        late = b"".join(packed)
        raise TimeoutError

    watching.send_packed_command = keep
    kept_open, watching.disconnect = watching.disconnect, lambda: None
    first = rows_of(rng, new_ids(rng, 100), 1)
    assert table.rows.write_newer(first).all()
    second = rows_of(rng, first.ids, 2)
    assert table.rows.write_newer(second).all()
    assert late.count(b"HSET") > 10
    sent([late])
    while watching.read_response() == b"OK":  # the answer to MULTI, and those to the commands
        pass
    while (answer := watching.read_response()) == b"QUEUED":
        pass
    assert answer is None, "Redis has run it"
    kept_open()
    assert_rows(table.rows.read(first.ids), second)
    store.ping()


def test_pushes_of_rows_that_are_being_written_wait(table, rng):
    """A later version is not overwritten by an earlier one, whose transaction is on its way."""
    ids = new_ids(rng, 2000)
    blocks = [rows_of(rng, ids, version) for version in range(1, 9)]
    threads = [threading.Thread(target=table.rows.write_newer, args=(block,)) for block in blocks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert_rows(table.rows.read(ids), blocks[-1])


@pytest.fixture
def successor(url, client, store, table, rng):
    """A server that takes over a table of 500 rows, of which it has forgotten 100 after a cut."""
    first = rows_of(rng, new_ids(rng, 500), 1)
    table.rows.write_newer(first)
    table.cuts.keep_pre_images(3)
    table.rows.forget_older(first.ids[:100], 2)
    client.hset(CLAIMS, "0:until", 0)
    successor = open_url(url)
    yield successor, first
    successor.close()


def test_a_server_that_takes_over_learns_which_rows_there_are(client, successor, rng):
    server, first = successor
    taken = server.open(SPEC)
    taken.cuts.keep_pre_images(3)
    (survey,) = server._surveys
    survey.wait()
    before = transactions_run(client)
    second = rows_of(rng, new_ids(rng, 300), 2)
    assert taken.rows.write_newer(second).all()
    assert transactions_run(client) == before + 1
    for ids in (first.ids[:100], first.ids[100:]):
        assert taken.rows.write_newer(rows_of(rng, ids, 2)).all()
    assert transactions_run(client) == before + 1, "rows that were there, or have pre-images, are written by scripts"
    everything = np.concatenate([first.ids, second.ids, new_ids(rng, 50)])
    assert taken.rows.versions(everything).tolist() == [2] * 800 + [0] * 50
    server.ping()  # compares the counters with the rows
    assert taken.cuts.put_back([3]) == 800
    assert as_dict(taken.rows) == blocks_as_dict([first])


def test_until_then_every_row_may_be_there(client, successor, rng):
    server, first = successor
    server._insertions[SPEC.name] = Insertions(server._transactions, begun=False)
    taken = server.open(SPEC)
    before = transactions_run(client)
    assert taken.rows.write_newer(rows_of(rng, new_ids(rng, 300), 1)).all()
    assert transactions_run(client) == before
    assert taken.rows.versions(first.ids).sum() == 400


def test_rows_that_leave_or_come_back_meanwhile_are_no_new_ones(client, successor, rng):
    """The survey may have passed their hashes, or may never see them."""
    server, first = successor
    server._insertions[SPEC.name] = insertions = Insertions(server._transactions, begun=False)
    taken = server.open(SPEC)
    taken.cuts.keep_pre_images(4)
    taken.rows.forget_older(first.ids[100:200], 2)
    taken.cuts.put_back([3])
    insertions.know_all()
    before = transactions_run(client)
    for ids in (first.ids[:100], first.ids[100:200]):
        assert taken.rows.write_newer(rows_of(rng, ids, 2)).all()
    assert transactions_run(client) == before
    taken.cuts.put_back([4])
    assert blocks_as_dict([first[100:200]]).items() <= as_dict(taken.rows).items()


def test_hashes_that_are_too_large_to_be_listed_leave_all_rows_to_scripts(client, successor, rng, caplog):
    server, _ = successor
    insertions = Insertions(server._transactions, begun=False)
    survey = Survey(SPEC.name, list(range(256)), server._redis, insertions, max_fields=1)
    survey.wait()
    assert "fields, and at most 1 are read at a time" in caplog.text
    assert insertions.may_be_written(new_ids(rng, 10)).all()


def test_a_user_without_transactions_stores_rows_by_scripts(client, url, store, rng):
    store.close()
    commands = ["+@all", "-watch", "-multi", "-exec"]
    client.acl_setuser("clerk", enabled=True, passwords=["+secret"], keys=["*"], commands=commands)
    plain = open_url(url.replace("redis://", "redis://clerk:secret@"))
    plain.create(SPEC)
    rows = plain.open(SPEC).rows
    first = rows_of(rng, new_ids(rng, 100), 1)
    before = transactions_run(client)
    assert rows.write_newer(first).all()
    assert_rows(rows.read(first.ids), first)
    assert transactions_run(client) == before
    plain.close()
    client.acl_deluser("clerk")


def test_a_full_redis_is_named_and_its_rows_can_be_forgotten(client, store, table, rng):
    first = rows_of(rng, new_ids(rng, 100), 1)
    table.rows.write_newer(first)
    client.config_set("maxmemory", "1mb")
    try:
        with pytest.raises(StorageUnwritable, match="is full"):
            table.rows.write_newer(rows_of(rng, new_ids(rng, 100), 1))
        assert table.rows.read(first.ids).versions.all()
    finally:
        client.config_set("maxmemory", "0")
    assert table.rows.forget_older(first.ids, 2**30) == 100
    store.ping()


def test_a_redis_that_has_lost_the_number_of_claims_is_refused(client, table, transactions, rng):
    table.rows.write_newer(rows_of(rng, new_ids(rng, 100), 1))
    client.delete(CHANGES)
    transactions._lost += 1
    with pytest.raises(StoreLost, match="the number of claims is gone"):
        table.rows.write_newer(rows_of(rng, new_ids(rng, 100), 1))
