"""Checkpoints in an object store: whole or refused by name, also if writers die, stand still or come too late."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from esd.ps_server.core.shard import Shard
from esd.ps_server.core.store import StoreLost
from esd.ps_server.core.table import Table
from esd.ps_server.core.tables import Tables
from esd.ps_server.stores.by_url import check_store, open_store
from esd.ps_server.stores.objects import bucket, claim
from esd.ps_server.stores.objects.store import ObjectStore
from esd.services.domain.batches import LogEntry
from esd.services.domain.errors import FailedPrecondition, InvalidArgument, StorageUnwritable, Unavailable
from esd.services.domain.rows import RowBlock
from esd.services.domain.tables import OptimizerSpec, TableSpec
from tests.support.object_store import s3_client
from tests.support.stores import DISPATCHER

SPEC = TableSpec("t", 3, OptimizerSpec(), seed=1, init_scale=0.1)
SAVED = 5  # steps of a checkpoint until it is durable: two parts, the cut, its rows, the note that they are there
STEPS = SAVED + 1  # and the commit
ROWS = 200


def opened(url: str) -> tuple[ObjectStore, Table]:
    store = ObjectStore(url, Shard())
    store.claim(exclusive=False)
    tables = Tables(store, Shard())
    tables.create(SPEC)
    return store, tables.get("t")


def train(table: Table, value: float) -> None:
    """Gives every row the value."""
    ids = np.arange(ROWS, dtype=np.uint64)
    block = RowBlock(ids, table.read(ids).versions + 1, np.full((ROWS, 3), value, np.float32))
    table.push_rows(block, table.history.record.epoch)


def checkpoint(table: Table, cut: int, name: bytes) -> None:
    history = table.history
    epoch = history.record.epoch
    for part in ("dense", "engine"):
        table.blobs.put_part(cut, part, name)
    history.cut(epoch, cut, 0, 1)
    history.save(epoch, cut)
    history.commit(epoch, cut, name, 1)


def values(table: Table) -> set[float]:
    """The values of all rows: a mixture of checkpoints has several."""
    return {float(value) for block in table.scan() for value in block.rows.ravel()}


def keys(url: str) -> dict[str, str]:
    """The objects of table and shard: name of the file -> key."""
    name, _, prefix = url.removeprefix("s3://").partition("/")
    found = s3_client().list_objects_v2(Bucket=name, Prefix=f"{prefix}/t/")["Contents"]
    return {each["Key"].rpartition("/")[2].rpartition(".")[0]: each["Key"] for each in found}


def bucket_of(url: str) -> str:
    return url.removeprefix("s3://").partition("/")[0]


@pytest.fixture
def taken_over_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any other server counts as one that stands still: its claim is taken over unless it is renewed at this moment."""
    monkeypatch.setattr(claim, "LIFETIME_SECONDS", 0.0)
    monkeypatch.setattr(claim, "RENEWAL_SECONDS", 0.0)
    monkeypatch.setattr(claim, "_LOOK_SECONDS", 0.0)


def run_until_killed(url: str, step: int) -> None:
    """Takes checkpoints 1 and 2, and dies before the step of the second at which an object gets its name."""
    _, table = opened(url)
    train(table, 1)
    checkpoint(table, 1, b"1")
    train(table, 2)
    put, close, done = bucket.Bucket.put, bucket._Counted.close, []

    def step_or_die() -> None:
        if len(done) == step:
            os.kill(os.getpid(), signal.SIGKILL)
        done.append(step)

    def put_or_die(self: Any, *arguments: Any) -> Any:
        step_or_die()
        return put(self, *arguments)

    def close_or_die(self: Any) -> None:
        step_or_die()
        close(self)

    bucket.Bucket.put = put_or_die  # type: ignore[method-assign]
    bucket._Counted.close = close_or_die  # type: ignore[method-assign]
    checkpoint(table, 2, b"2")
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("step", range(STEPS + 1))
def test_a_writer_killed_at_any_step_leaves_a_whole_checkpoint(s3_url: str, step: int) -> None:
    command = [sys.executable, __file__, s3_url, str(step)]
    assert subprocess.run(command, check=False, timeout=240).returncode == -signal.SIGKILL
    store, table = opened(s3_url)  # at once: its process has ended
    valid = 2 if step == STEPS else 1
    assert table.history.record.last.manifest == b"%d" % valid
    assert values(table) == {float(valid)}
    assert table.blobs.get_part(valid, "engine") == b"%d" % valid
    assert table.blobs.get_part(3 - valid, "dense") is None
    table.history.restore(valid, table.history.record.epoch + 1, DISPATCHER)
    train(table, 3)
    checkpoint(table, 3, b"3")
    store.close()
    assert values(opened(s3_url)[1]) == {3.0}


def test_twenty_writers_at_once_leave_what_one_of_them_wrote(s3_url: str, taken_over_at_once: None) -> None:
    """Each takes the shard over wherever it can, in the midst of the checkpoints of others."""

    reasons: list[str] = []

    def write(writer: int) -> list[int]:
        """Tries to take checkpoints; returns the attempts that were acknowledged."""
        done = []
        for attempt in range(1, 4):
            try:
                _, table = opened(s3_url)
                train(table, writer)
                cut = table.history.record.last_iteration + 1
                checkpoint(table, cut, b"%d" % writer)
            except FailedPrecondition as error:
                reasons.append(str(error))
            else:
                done.append(attempt)
        return done

    with ThreadPoolExecutor(20) as pool:
        done = list(pool.map(write, range(1, 21)))
    assert any(done)
    assert all("another process" in reason for reason in reasons)
    store, table = opened(s3_url)
    last = int(table.history.record.last.manifest)
    assert done[last - 1]
    assert values(table) == {float(last)}
    assert table.blobs.get_part(table.history.record.last.iteration, "dense") == b"%d" % last
    store.close()


def test_of_twenty_that_write_the_same_manifest_one_wins(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store, table = opened(s3_url)
    train(table, 1)
    checkpoint(table, 1, b"1")
    store.close()
    writers = [ObjectStore(s3_url, Shard()).open(SPEC).history for _ in range(20)]
    for number, writer in enumerate(writers):
        writer.load()
        monkeypatch.setattr(writer._claim, "holder", f"writer {number}")  # type: ignore[attr-defined]

    def save(number: int) -> bool:
        try:
            writers[number].save(b"written by %d" % number)
        except StoreLost:
            return False
        return True

    with ThreadPoolExecutor(20) as pool:
        won = list(pool.map(save, range(20)))
    assert won.count(True) == 1
    assert ObjectStore(s3_url, Shard()).open(SPEC).history.load() == b"written by %d" % won.index(True)


def test_a_writer_that_was_replaced_is_refused_and_harms_nothing(s3_url: str, taken_over_at_once: None) -> None:
    store, stale = opened(s3_url)
    train(stale, 1)
    checkpoint(stale, 1, b"1")
    train(stale, 2)
    stale.history.cut(stale.history.record.epoch, 2, 0, 1)

    successor, table = opened(s3_url)
    train(table, 3)
    checkpoint(table, 2, b"successor")
    with pytest.raises(StoreLost, match=r"another process has taken over shard-0-of-1 in s3://"):
        stale.history.save(stale.history.record.epoch, 2)
    for late in (
        lambda: store.open(SPEC).log.append(LogEntry(0, 1, b"sample")),
        lambda: stale.blobs.put_dense(b"late"),
        store.ping,
    ):
        with pytest.raises(StoreLost, match="another process has taken over"):
            late()
    successor.close()
    assert values(opened(s3_url)[1]) == {3.0}


def test_a_writer_that_was_replaced_before_the_first_checkpoint_makes_none(
    s3_url: str, taken_over_at_once: None
) -> None:
    stale = opened(s3_url)[1]
    table = opened(s3_url)[1]
    train(stale, 1)
    with pytest.raises(StoreLost, match="another process has taken over"):
        stale.history.cut(stale.history.record.epoch, 1, 0, 1)
    train(table, 2)
    checkpoint(table, 1, b"successor")
    assert values(opened(s3_url)[1]) == {2.0}


def test_a_log_entry_that_nobody_was_told_of_does_not_come_between(s3_url: str, taken_over_at_once: None) -> None:
    store, _ = opened(s3_url)
    log = store.open(SPEC).log
    log.append(LogEntry(0, 10, b"first"))
    successor, _ = opened(s3_url)
    own = successor.open(SPEC).log
    assert own.last() == LogEntry(0, 10)
    with pytest.raises(StoreLost):
        log.append(LogEntry(10, 5, b"late"))
    own.append(LogEntry(10, 7, b"next"))
    successor.close()
    expected = [LogEntry(0, 10, b"first"), LogEntry(10, 7, b"next")]
    assert list(own.read()) == expected
    assert list(opened(s3_url)[0].open(SPEC).log.read()) == expected


def lose(name: str, key: str) -> None:
    s3_client().delete_object(Bucket=name, Key=key)


def truncate(name: str, key: str) -> None:
    data = s3_client().get_object(Bucket=name, Key=key)["Body"].read()
    s3_client().put_object(Bucket=name, Key=key, Body=data[:-1])


def alter(name: str, key: str) -> None:
    data = bytearray(s3_client().get_object(Bucket=name, Key=key)["Body"].read())
    data[len(data) // 2] ^= 1
    s3_client().put_object(Bucket=name, Key=key, Body=bytes(data))


@pytest.mark.parametrize(
    ("harm", "file", "error"),
    [
        (lose, "rows-1", r"s3://.*/rows-1\.1-\d+ is missing; no other one can be read"),
        (truncate, "rows-1", r"rows-1\.1-\d+ is damaged: it has \d+ bytes, and had \d+ when it was written"),
        (alter, "rows-1", r"rows-1\.1-\d+ is damaged: its checksum differs"),
        (truncate, "manifest", r"s3://.*/manifest.json is damaged: its checksum differs"),
        (alter, "manifest", r"s3://.*/manifest.json is damaged: its checksum differs"),
        (alter, "dense", r"s3://.*/dense\.1-\d+ is damaged"),
        (alter, "0-5", r"s3://.*/samples/0-5\.1-\d+ is damaged"),
        (truncate, "table", r"t/table.pb is damaged"),
    ],
)
def test_what_is_lost_truncated_or_altered_is_named(s3_url: str, harm: Any, file: str, error: str) -> None:
    store, table = opened(s3_url)
    train(table, 1)
    table.blobs.put_dense(b"dense parameters")
    store.open(SPEC).log.append(LogEntry(0, 5, b"five samples"))
    checkpoint(table, 1, b"1")
    store.close()
    harm(bucket_of(s3_url), keys(s3_url)[file])

    def read() -> None:
        store, table = opened(s3_url)
        table.blobs.get_dense()
        list(store.open(SPEC).log.read())

    with pytest.raises(FailedPrecondition, match=error):
        read()


def test_objects_of_no_use_are_removed(s3_url: str) -> None:
    store, table = opened(s3_url)
    log = store.open(SPEC).log
    for cut in range(1, 8):
        train(table, cut)
        table.blobs.put_dense(b"%d" % cut)
        log.append(LogEntry(cut, 1, b"sample"))
        log.trim(cut)
        checkpoint(table, cut, b"%d" % cut)
    needed = {"table", "manifest", "dense", "part-7-dense", "part-7-engine", "rows-7", "7-1"}
    left = set(keys(s3_url)) - {"rows-6"}  # on which the last checkpoint may build
    assert left == needed
    epoch = table.history.record.epoch
    table.blobs.put_part(9, "dense", b"never committed")
    table.history.cut(epoch, 9, 0, 1)
    table.history.save(epoch, 9)
    store.close()
    store, table = opened(s3_url)
    table.history.restore(7, table.history.record.epoch + 1, DISPATCHER)
    checkpoint(table, 10, b"10")
    assert {name for name in keys(s3_url) if name.startswith("part")} == {"part-10-dense", "part-10-engine"}
    store.close()


def test_another_number_of_servers_is_refused(s3_url: str) -> None:
    store, table = opened(s3_url)
    train(table, 1)
    checkpoint(table, 1, b"1")
    store.close()
    store = ObjectStore(s3_url, Shard(0, 2))
    store.claim(exclusive=False)
    with pytest.raises(FailedPrecondition, match=r"are of 1 parameter servers, and here are 2: .*--shards"):
        Tables(store, Shard(0, 2))
    store.close()


def test_urls_and_bucket_that_cannot_work_are_refused_by_name(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for url in ("http://bucket/kept", "s3://", "s3:///kept", "gopher://a"):
        with pytest.raises(InvalidArgument, match=r"s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX"):
            check_store("memory", url)
    with pytest.raises(InvalidArgument, match="is for the memory store"):
        check_store("redis://127.0.0.1:1", s3_url)
    monkeypatch.setattr(bucket, "_RETRY_SECONDS", 1)
    with pytest.raises((FailedPrecondition, Unavailable), match=r"s3://no-such-bucket"):
        open_store("memory", Shard(), 1.0, checkpoint_dir="s3://no-such-bucket/kept")


def test_without_the_library_a_url_is_refused_with_the_command(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(FailedPrecondition, match=r"pip install 'esd-train\[object-stores\]'"):
        check_store("memory", s3_url)


def test_a_store_out_of_reach_keeps_the_rows_and_the_next_checkpoint_succeeds(
    s3_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket, "_RETRY_SECONDS", 1)
    store, table = opened(s3_url)
    train(table, 1)
    checkpoint(table, 1, b"1")
    train(table, 2)
    epoch = table.history.record.epoch
    unreachable = {"endpoint": "http://127.0.0.1:1", "client_options": {"allow_http": True}}
    away = bucket.from_url(s3_url, **unreachable, retry_config={"max_retries": 0})
    with monkeypatch.context() as patch:
        for connection in ("_small", "_pieces"):
            patch.setattr(store.bucket, connection, away)
        with pytest.raises(StorageUnwritable, match=rf"{s3_url}/t/.*is repeated for 1 s.*AWS_ENDPOINT_URL"):
            checkpoint(table, 2, b"2")
    assert table.history.record.epoch == epoch
    assert values(table) == {2.0}
    checkpoint(table, 2, b"2")
    store.close()
    assert values(opened(s3_url)[1]) == {2.0}


if __name__ == "__main__":
    run_until_killed(sys.argv[1], int(sys.argv[2]))
