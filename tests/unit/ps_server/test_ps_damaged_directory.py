"""A checkpoint directory whose disk is full, read-only or broken, or whose files another program has changed."""

from __future__ import annotations

import errno
import os
import shutil

import numpy as np
import pytest

from esd.ps_server.core.history_record import HistoryRecord
from esd.ps_server.core.shard import Shard
from esd.ps_server.core.store import StoreLost
from esd.ps_server.core.table import Table
from esd.ps_server.core.tables import Tables
from esd.ps_server.stores.directory.store import DirectoryStore
from esd.services.domain.batches import LogEntry
from esd.services.domain.errors import FailedPrecondition, StorageUnwritable, Unavailable
from tests.support.stores import SPEC, open_url, rows_of


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def store(tmp_path):
    opened = open_url(tmp_path)
    opened.create(SPEC)
    yield opened
    opened.close()


@pytest.fixture
def log(store):
    """A sample log of three entries."""
    table = Table(SPEC, store.open(SPEC), Shard())
    for position in (0, 5, 10):
        table.samples.append(LogEntry(position, 5, b"batch at %d" % position), 0)
    return table.samples


def damage(path, at=-1):
    """Flips one bit of a file."""
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("accident", "text"),
    [
        (lambda samples: damage(samples / "5-5"), r"samples/5-5 is damaged: its checksum differs \(26 bytes"),
        (lambda samples: damage(samples / "5-5", at=0), "samples/5-5 is damaged"),
        (lambda samples: os.truncate(samples / "5-5", 20), "samples/5-5 is damaged"),
        (lambda samples: os.truncate(samples / "5-5", 0), r"samples/5-5 is damaged.*\(0 bytes"),
        (lambda samples: shutil.copy(samples / "0-5", samples / "5-5"), "samples/5-5 is damaged"),
        (lambda samples: (samples / "5-5").unlink(), "lacks the samples from 5 to 10"),
        (
            lambda samples: (samples / "notes.txt").write_text("x"),
            r"notes.txt is not an entry of a sample log; remove it",
        ),
    ],
)
def test_a_sample_log_that_is_not_as_it_was_written_is_named(log, tmp_path, accident, text):
    accident(tmp_path / SPEC.name / "samples")
    with pytest.raises(FailedPrecondition, match=text):
        list(log.read(0))


def test_the_last_entry_that_was_cut_off_is_named(log, tmp_path):
    os.truncate(tmp_path / SPEC.name / "samples" / "10-5", 3)
    with pytest.raises(FailedPrecondition, match=r"10-5 is damaged.*esd checkpoint restore"):
        list(log.read(0))


def test_damaged_dense_parameters_are_named(store, tmp_path):
    blobs = store.open(SPEC).blobs
    blobs.put_dense(b"dense")
    damage(tmp_path / SPEC.name / "shard-0-of-1" / "dense")
    with pytest.raises(FailedPrecondition, match="dense is damaged"):
        blobs.get_dense()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_disk_that_takes_nothing_fails_the_write_by_name_and_leaves_nothing(
    store, tmp_path, monkeypatch, rng, number
):
    table = store.open(SPEC)
    table.rows.write_newer(rows_of(rng, range(10), 1))

    def fsync(_):
        raise OSError(number, os.strerror(number))

    writes = {
        "10-1": lambda: table.log.append(LogEntry(10, 1, b"x")),
        "part-5-engine": lambda: table.blobs.put_part(5, "engine", b"x"),
        "dense": lambda: table.blobs.put_dense(b"x"),
        "rows-5": lambda: table.cuts.save(5, 0, 0),
        "history.json": lambda: table.history.save(HistoryRecord().encode()),
    }
    monkeypatch.setattr("os.fsync", fsync)
    for name, write in writes.items():
        with pytest.raises(StorageUnwritable, match=f"{name}: {os.strerror(number)}; "):
            write()
    assert not [path for path in tmp_path.rglob("*") if path.suffix == ".draft"]
    monkeypatch.undo()  # there is room again
    for write in writes.values():
        write()
    assert table.log.last() == LogEntry(10, 1)


def test_another_error_of_the_disk_is_named_too(store, monkeypatch):
    def fsync(_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("os.fsync", fsync)
    with pytest.raises(FailedPrecondition, match=r"dense: Input/output error; look at the checkpoint directory"):
        store.open(SPEC).blobs.put_dense(b"x")


def test_drafts_of_a_process_that_died_are_removed_when_the_next_begins(store, log, tmp_path):
    drafts = [tmp_path / SPEC.name / place for place in ("samples/15-5.7.draft", "shard-0-of-1/rows-9.7.draft")]
    for draft in drafts:
        draft.parent.mkdir(exist_ok=True)
        draft.write_bytes(b"half")
    store.close()
    again = open_url(tmp_path)
    assert not any(draft.exists() for draft in drafts)
    again.close()


@pytest.mark.parametrize("content", [b"", b"\xff\xff no message", b"\x0a\x01!"])
def test_a_damaged_specification_is_named(store, tmp_path, content):
    store.close()
    (tmp_path / SPEC.name / "table.pb").write_bytes(content)
    with pytest.raises(FailedPrecondition, match=r"table.pb is damaged: it holds no specification of a table"):
        DirectoryStore(tmp_path, Shard())


def test_a_removed_directory_is_noticed_and_the_next_checkpoint_is_whole(tmp_path, rng, caplog):
    """Its checkpoints are gone; later ones can be restored."""
    directory = tmp_path / "kept"
    store = open_url(directory)
    tables = Tables(store, Shard())
    tables.create(SPEC)
    table = tables.get(SPEC.name)

    def checkpoint(cut):
        table.push_rows(rows_of(rng, range(50), cut), 0)
        table.history.cut(0, cut, 0, 1)
        table.history.save(0, cut)
        table.history.commit(0, cut, b"manifest", 2)

    checkpoint(1)
    shutil.rmtree(directory)
    store.ping()
    assert "was removed or replaced" in caplog.text
    with pytest.raises(FailedPrecondition, match="another process serves shard-0-of-1"):
        open_url(directory)
    checkpoint(2)
    expected = {int(i): int(v) for block in table.scan() for i, v in zip(block.ids, block.versions, strict=True)}
    store.close()

    successor = open_url(directory)
    again = Tables(successor, Shard()).get(SPEC.name)
    found = {int(i): int(v) for block in again.scan() for i, v in zip(block.ids, block.versions, strict=True)}
    assert found == expected
    assert again.history.record.last.iteration == 2
    successor.close()


def test_a_directory_that_another_server_has_got_hold_of_is_lost(tmp_path):
    directory = tmp_path / "kept"
    store = open_url(directory)
    shutil.rmtree(directory)
    other = open_url(directory)
    for _ in range(2):
        with pytest.raises(StoreLost, match=r"was taken from .* another process serves shard-0-of-1"):
            store.ping()
    other.close()
    with pytest.raises(StoreLost):  # what it has in memory is not what the other one has written
        store.ping()
    store.close()


def test_a_directory_that_cannot_be_looked_at_is_asked_for_again(tmp_path):
    """As when a network file system does not answer for a while: the server goes on to look."""
    directory, aside = tmp_path / "kept", tmp_path / "aside"
    store = open_url(directory)
    directory.rename(aside)
    directory.symlink_to(directory)
    with pytest.raises(Unavailable, match=r"kept/shard-0-of-1\.lock: .* look at the checkpoint directory"):
        store.ping()
    directory.unlink()
    aside.rename(directory)
    store.ping()
    store.close()
