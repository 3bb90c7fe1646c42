"""A memory store with a checkpoint directory, across deaths of its process."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import numpy as np
import pytest

from esd.ps_server.core.history_record import Cut
from esd.ps_server.core.shard import Shard
from esd.ps_server.core.table import Table
from esd.ps_server.core.tables import Tables
from esd.ps_server.service.offline import offline_tables
from esd.ps_server.service.settings import ParameterServerSettings
from esd.ps_server.stores.directory.disk import DiskFolder
from esd.ps_server.stores.directory.row_files import chain_of, rows_in
from esd.ps_server.stores.directory.store import DirectoryStore
from esd.ps_server.stores.memory import MemoryRows
from esd.services.domain.errors import FailedPrecondition, StaleEpoch
from esd.services.domain.ids import shard_of
from esd.services.domain.rows import RowBlock
from esd.services.domain.tables import OptimizerSpec, TableSpec
from tests.support.power_cut import Disk, files_in
from tests.support.stores import DISPATCHER

SPEC = TableSpec("t", 3, OptimizerSpec(), seed=1, init_scale=0.1)
ONE = 1  # the only worker's mask


class Server:
    """One life of a server after the other, on the same directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._rng = np.random.default_rng(0)
        self.start()

    def start(self) -> None:
        self._tables = Tables(DirectoryStore(self._directory, Shard()), Shard())
        self._tables.create(SPEC)
        self.table = self._tables.get("t")
        self.epoch = self.table.history.record.epoch

    def train(self, count: int) -> None:
        """Moves `count` of 500 rows on by one version."""
        ids = self._rng.choice(500, count, replace=False).astype(np.uint64)
        versions = self.table.read(ids).versions + 1
        self.table.push_rows(RowBlock(ids, versions, self._rng.random((count, 3), np.float32)), self.epoch)

    def checkpoint(self, cut: int, keep: int = 1) -> int:
        """Takes one; the rows that had to be written."""
        self.table.history.cut(self.epoch, cut, 0, ONE)
        self.train(20)  # goes on while the cut is written
        written, _ = self.table.history.save(self.epoch, cut)
        self.table.history.commit(self.epoch, cut, b"manifest", keep)
        return written

    def restore(self, cut: int) -> None:
        self.epoch += 1
        self.table.history.restore(cut, self.epoch, DISPATCHER)

    def rows(self) -> dict[int, tuple[int, bytes]]:
        return {
            int(i): (int(v), row.tobytes())
            for block in self.table.scan()
            for i, v, row in zip(block.ids, block.versions, block.rows, strict=True)
        }

    @property
    def files(self) -> list[Path]:
        return sorted(self._directory.rglob("rows-*[0-9]"))


@pytest.fixture
def server(tmp_path):
    return Server(tmp_path)


def test_a_save_whose_answer_was_lost_writes_nothing_again(server):
    server.train(100)
    server.table.history.cut(server.epoch, 10, 0, ONE)
    saved = server.table.history.save(server.epoch, 10)
    (written,) = server.files
    before = written.stat()
    assert server.table.history.save(server.epoch, 10) == saved
    assert written.stat() == before
    server.restore(0)
    server.train(50)
    server.table.history.cut(server.epoch, 10, 0, ONE)
    assert server.table.history.save(server.epoch, 10)[0] == 50  # other rows, in another epoch


def test_a_new_process_has_the_rows_of_the_committed_cut(server):
    server.train(200)
    at_cut = server.rows()
    server.checkpoint(10)
    server.train(100)
    server.start()
    assert server.rows() == at_cut
    assert server.table.history.record.last.manifest == b"manifest"
    server.train(50)
    server.restore(10)
    assert server.rows() == at_cut


def test_checkpoints_hold_what_changed_and_all_before_their_files_hold_half_as_much_again(server):
    server.train(400)
    assert server.checkpoint(1) == 400
    states, chains = [], []
    for cut in range(2, 30):
        server.train(10)
        states.append((server.rows(), server.checkpoint(cut)))
        folder = DiskFolder(server.files[0].parent)
        chain = chain_of(folder, cut)
        chains.append(len(chain))
        assert set(chain) == {path.name for path in server.files}
        assert sum(rows_in(folder, name, SPEC.row_width) for name in chain[1:]) <= 1.5 * len(server.rows()) - 20
    written = [count for _, count in states]
    assert sum(count <= 30 for count in written) >= 22
    assert max(written) >= 400
    assert max(chains) >= 6
    server.start()
    assert server.rows() == states[-1][0]


def test_a_checkpoint_of_new_rows_never_writes_earlier_rows_again(server):
    """However long the job is, the files hold each row once."""
    for cut in range(1, 40):
        ids = np.arange(50 * cut, 50 * cut + 50, dtype=np.uint64)
        server.table.push_rows(RowBlock(ids, np.ones(50, np.int64), np.ones((50, 3), np.float32)), server.epoch)
        server.table.history.cut(server.epoch, cut, 0, ONE)
        assert server.table.history.save(server.epoch, cut)[0] == 50
        server.table.history.commit(server.epoch, cut, b"manifest", 2)
    assert sum(rows_in(DiskFolder(path.parent), path.name, SPEC.row_width) for path in server.files) < 1.1 * 39 * 50
    before = server.rows()
    server.start()
    assert server.rows() == before


def test_a_cut_that_was_not_committed_is_not_restored(server):
    server.train(200)
    at_cut = server.rows()
    server.checkpoint(10)
    server.train(100)
    server.table.history.cut(server.epoch, 20, 0, ONE)
    server.table.history.save(server.epoch, 20)
    server.start()  # before the commit
    assert server.rows() == at_cut
    assert [path.name for path in server.files] == ["rows-10", "rows-20"]  # another shard may have committed it
    server.restore(10)
    assert server.rows() == at_cut
    assert [path.name for path in server.files] == ["rows-10"]
    server.train(30)
    second = server.rows()
    server.checkpoint(20)
    server.start()
    assert server.rows() == second


def test_half_a_file_is_as_good_as_none(server, tmp_path):
    server.train(200)
    server.checkpoint(10)
    rows = server.rows()
    (server.files[0].parent / "rows-20.draft").write_bytes(b"ESDROWS1")
    server.restore(10)
    rows = server.rows()
    server.start()
    assert server.rows() == rows


def test_a_damaged_file_is_named(server):
    server.train(200)
    server.checkpoint(10)
    path = server.files[0]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(FailedPrecondition, match="rows-10 is damaged"):
        server.start()


def test_a_damaged_checkpoint_names_the_way_back_to_one_that_is_whole(server):
    server.train(400)
    for cut in (1, 2):
        server.train(30)
        server.checkpoint(cut, keep=2)
    first, second = server.files
    assert chain_of(DiskFolder(first.parent), 2) == [second.name, first.name]
    for path, way_out in ((second, "esd checkpoint restore 1"), (first, "no other one can be read")):
        whole = path.read_bytes()
        path.write_bytes(whole[:-1] + b"?")
        with pytest.raises(
            FailedPrecondition, match=f"checkpoint 2 cannot be read: .*{path.name} is damaged.*{way_out}"
        ):
            server.start()
        path.write_bytes(whole)
    server.start()


@pytest.mark.parametrize("whole", [False, True])
def test_a_cut_is_saved_while_its_rows_change_and_go(server, whole):
    """Rows are trained, removed and created in another thread all the time."""
    server.train(400)
    if not whole:
        server.checkpoint(10)
        server.train(60)
    server.table.history.cut(server.epoch, 20, 0, ONE)
    at_cut, table, ended = server.rows(), server.table, threading.Event()
    life = 2**30

    def go_on() -> int:
        for turn in range(1, 10_000):
            server.train(50)
            ids = server._rng.choice(500, 50, replace=False).astype(np.uint64)
            table.forget(ids, turn * life, server.epoch)
            table.push_rows(
                RowBlock(ids[:25], np.full(25, turn * life + 1), np.ones((25, 3), np.float32)), server.epoch
            )
            if ended.is_set():
                break
        return turn

    with ThreadPoolExecutor(1) as threads:
        writer = threads.submit(go_on)
        for _ in range(20):
            table.history._last_save = None  # otherwise a repeated save has the first one's result
            table.history.save(server.epoch, 20)
        ended.set()
        assert writer.result() > 1
    assert len(chain_of(DiskFolder(server.files[0].parent), 20)) == (1 if whole else 2)
    table.history.commit(server.epoch, 20, b"manifest", 1)
    server.start()
    assert server.rows() == at_cut


def test_esd_checkpoint_restore_leads_out_of_a_damaged_file(server, tmp_path):
    states = {}
    for cut in (1, 2, 3):
        server.train(200)
        states[cut] = server.rows()
        server.checkpoint(cut, keep=2)
    (server.files[0].parent / "rows-3").write_bytes(b"ESDROWS1")
    with pytest.raises(FailedPrecondition, match="esd checkpoint restore 2"):
        server.start()
    with offline_tables(ParameterServerSettings(checkpoint_dir=tmp_path)) as (table,), table.claimed():
        assert table.damaged_rows(3)
        assert not table.damaged_rows(2)
        assert table.restore(2) == 0  # files are dropped, and no rows read into memory
    server.start()
    assert server.rows() == states[2]


def test_who_knew_the_process_before_is_refused(server):
    server.train(10)
    server.checkpoint(10)
    before = server.epoch
    server.start()
    with pytest.raises(StaleEpoch):
        server.table.history.check_epoch(before)


def test_a_table_without_a_checkpoint_begins_anew(server):
    server.train(100)
    server.start()
    assert server.rows() == {}


@pytest.mark.parametrize("died", [False, True])
def test_older_checkpoints_stay_and_can_be_gone_back_to(server, died):
    states = {}
    for cut in range(10, 60, 10):
        server.train(150)
        states[cut] = server.rows()
        server.checkpoint(cut, keep=3)
        server.train(30)
    assert [each.iteration for each in server.table.history.record.committed] == [30, 40, 50]
    for cut in (50, 40, 30):
        if died:
            server.start()
        server.restore(cut)
        assert server.rows() == states[cut]
        assert [each.iteration for each in server.table.history.record.committed][-1] == cut
        server.train(60)
    server.restore(30)
    assert server.rows() == states[30]
    with pytest.raises(FailedPrecondition, match="cannot go back to checkpoint 20"):
        server.restore(20)


def test_a_checkpoint_after_one_that_could_not_be_saved_is_whole(server):
    """Changes between the two are in neither file of changes."""
    server.train(200)
    server.checkpoint(10)
    server.train(100)
    server.table.history.cut(server.epoch, 20, 0, ONE)
    server.train(100)
    at_cut = server.rows()
    server.checkpoint(30)
    server.start()
    assert server.rows() == at_cut


def test_a_checkpoint_is_whole_where_a_file_that_it_would_build_on_is_gone(server):
    server.train(400)
    for cut in range(1, 5):
        server.train(20)
        server.checkpoint(cut)
    first, *_ = chain = chain_of(DiskFolder(server.files[0].parent), 4)[::-1]
    assert len(chain) > 1
    (server.files[0].parent / first).unlink()
    server.train(20)
    at_cut = server.rows()
    server.checkpoint(5)
    server.start()
    assert server.rows() == at_cut


def test_what_was_given_up_while_it_saved_does_not_end_up_in_a_later_checkpoint(server, monkeypatch):
    """A dispatcher that recovers goes back, and comes to the same cut again, while the disk is slow."""
    server.train(200)
    server.checkpoint(10)
    server.train(50)
    server.table.history.cut(server.epoch, 20, 0, ONE)
    changed, read, go_on = MemoryRows.changed_between, threading.Event(), threading.Event()

    def slowly(rows, cut, later):
        yield from changed(rows, cut, later)
        read.set()
        assert go_on.wait(60)

    monkeypatch.setattr(MemoryRows, "changed_between", slowly)
    with ThreadPoolExecutor(2) as threads:
        given_up = threads.submit(server.table.history.save, server.epoch, 20)
        assert read.wait(60)
        monkeypatch.setattr(MemoryRows, "changed_between", changed)
        server.restore(10)
        server.train(100)
        at_cut = server.rows()
        server.table.history.cut(server.epoch, 20, 0, ONE)
        saved = threads.submit(server.table.history.save, server.epoch, 20)
        wait([saved], timeout=0.3)  # for who would not wait
        go_on.set()
        with pytest.raises(StaleEpoch):
            given_up.result()
        assert saved.result()[0] == 100
    server.table.history.commit(server.epoch, 20, b"manifest", 1)
    server.start()
    assert server.rows() == at_cut


def test_a_checkpoint_that_cannot_be_gone_back_to_changes_nothing(server):
    for cut in (10, 20):
        server.train(200)
        server.checkpoint(cut, keep=2)
    path = server.files[0]
    assert path.name == "rows-10"
    server.start()
    server.train(50)
    before = server.rows()
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + b"?")
    with pytest.raises(FailedPrecondition, match="rows-10 is damaged"):
        server.table.history.restore(10, server.epoch + 1, DISPATCHER)
    assert server.rows() == before
    server.train(50)  # in the epoch that goes on
    path.write_bytes(whole)
    server.restore(20)
    rows = server.rows()
    server.start()
    assert server.rows() == rows


def test_a_damaged_record_is_named(server):
    server.train(20)
    server.checkpoint(10)
    path = server.files[0].with_name("history.json")
    path.write_bytes(path.read_bytes().replace(b'"iteration": 10', b'"iteration": 11'))
    with pytest.raises(FailedPrecondition, match=r"history.json is damaged"):
        server.start()
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(FailedPrecondition, match=r"history.json is damaged"):
        server.start()


def test_rows_of_later_lives_count_their_trainings_when_other_shards_take_over(tmp_path):
    life = 2**30
    (before,) = tables_of(tmp_path, 1)
    ids = np.arange(100, dtype=np.uint64)
    before.push_rows(RowBlock(ids, np.full(100, life + 3), np.ones((100, 3), np.float32)))
    before.history.cut(0, 10, 0, ONE)
    before.history.save(0, 10)
    before.history.commit(0, 10, b"manifest", 1)
    assert before.history.record.cuts == (Cut(10, 100, 300),)
    cuts = [table.history.record.cuts for table in tables_of(tmp_path, 2)]
    assert [sum(column) for column in zip(*((cut.rows, cut.trainings) for (cut,) in cuts), strict=True)] == [100, 300]


def test_what_other_shards_took_over_survives_a_power_cut(tmp_path, monkeypatch):
    """The first shard drops the folders that it was taken from."""
    (before,) = tables_of(tmp_path, 1)
    before.push_rows(RowBlock(np.arange(9, dtype=np.uint64), np.full(9, 1), np.ones((9, 3), np.float32)))
    before.history.cut(0, 10, 0, ONE)
    before.history.save(0, 10)
    before.history.commit(0, 10, b"manifest", 1)
    disk = Disk(monkeypatch)
    tables_of(tmp_path, 2)
    taken = {path: data for path, data in files_in(tmp_path / "t").items() if "-of-2/" in path}
    assert taken.keys() >= {"shard-0-of-2/rows-10", "shard-1-of-2/rows-10", "shard-1-of-2/history.json"}
    left = disk.left_in(tmp_path / "t")
    assert {path: left.get(path) for path in taken} == taken


def test_shards_that_were_taken_over_only_in_part_are_not_gone_back_to(tmp_path):
    """One of two servers has begun in place of four, whose folders alone are complete, beside one of long ago."""
    ids = np.arange(100, dtype=np.uint64)

    def train(tables: list[Table], cut: int) -> None:
        epoch = max(table.history.record.epoch for table in tables) + 1
        for index, table in enumerate(tables):
            table.history.begin_epoch(epoch, DISPATCHER, takes_over=False)
            own = ids[shard_of(ids, len(tables)) == index]
            table.push_rows(RowBlock(own, np.full(len(own), cut), np.full((len(own), 3), cut, np.float32)), epoch)
            table.history.cut(epoch, cut, 0, ONE)
            table.history.save(epoch, cut)
            table.history.commit(epoch, cut, b"manifest", 1)

    train(tables_of(tmp_path, 2), 10)
    train(tables_of(tmp_path, 4), 20)
    tables_of(tmp_path, 2, started=1)
    for again in (4, 2):
        tables = tables_of(tmp_path, again)
        assert sum(table.stored_rows() for table in tables) == 100
        assert all((block.versions == 20).all() for table in tables for block in table.scan())
        assert {table.history.record.last.iteration for table in tables} == {20}
    (tmp_path / "t" / "draft-of-shard-3-of-4").mkdir()  # of a server that died while it took over
    tables_of(tmp_path, 2)
    assert {path.name for path in (tmp_path / "t").glob("*shard*")} == {"shard-0-of-2", "shard-1-of-2"}


def tables_of(directory: Path, shards: int, started: int | None = None) -> list[Table]:
    """The table on each of its shards, or on the first ones, as new processes take it up."""
    found = []
    for shard in (Shard(index, shards) for index in range(shards)[:started]):
        tables = Tables(DirectoryStore(directory, shard), shard)
        tables.create(SPEC)
        found.append(tables.get("t"))
    return found
