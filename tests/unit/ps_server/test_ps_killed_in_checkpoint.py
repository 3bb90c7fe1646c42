"""kill -9 within a checkpoint, before each step by which something new counts: it is valid whole or not at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from esd.ps_server.core.shard import Shard
from esd.ps_server.core.table import Table
from esd.ps_server.core.tables import Tables
from esd.ps_server.stores.directory.store import DirectoryStore
from esd.services.domain.rows import RowBlock
from esd.services.domain.tables import OptimizerSpec, TableSpec
from tests.support.stores import DISPATCHER

SPEC = TableSpec("t", 3, OptimizerSpec(), seed=1, init_scale=0.1)
SAVED = 5  # steps of a checkpoint until it is durable: two parts, the cut, its rows, the note that they are there
STEPS = SAVED + 1  # and the commit


def opened(directory: Path) -> Table:
    tables = Tables(DirectoryStore(directory, Shard()), Shard())
    tables.create(SPEC)
    return tables.get("t")


def train(table: Table, version: int) -> None:
    ids = np.arange(version, 200 + version, dtype=np.uint64)
    rows = np.full((200, 3), version, np.float32)
    table.push_rows(RowBlock(ids, np.full(200, version), rows), table.history.record.epoch)


def checkpoint(table: Table, cut: int) -> None:
    epoch = table.history.record.epoch
    for part in ("dense", "engine"):
        table.blobs.put_part(cut, part, b"%d" % cut)
    table.history.cut(epoch, cut, 0, 1)
    table.history.save(epoch, cut)
    table.history.commit(epoch, cut, b"%d" % cut, 1)


def rows(table: Table) -> dict[int, float]:
    return {int(i): float(row[0]) for block in table.scan() for i, row in zip(block.ids, block.rows, strict=True)}


def run_until_killed(directory: Path, step: int) -> None:
    """Takes checkpoints 1 and 2, and dies before the step of the second at which a file gets its name."""
    table = opened(directory)
    train(table, 1)
    checkpoint(table, 1)
    train(table, 2)
    replace, done = Path.replace, []

    def replace_or_die(path: Path, target: Path) -> Path:
        if len(done) == step:
            os.kill(os.getpid(), signal.SIGKILL)
        done.append(target)
        return replace(path, target)

    Path.replace = replace_or_die
    checkpoint(table, 2)
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("step", range(STEPS + 1))
def test_a_checkpoint_is_valid_whole_or_not_at_all(tmp_path, step):
    command = [sys.executable, __file__, str(tmp_path), str(step)]
    assert subprocess.run(command, check=False, timeout=240).returncode == -signal.SIGKILL
    table = opened(tmp_path)
    valid = 2 if step == STEPS else 1
    assert table.history.record.last.manifest == b"%d" % valid
    expected = dict.fromkeys(range(1, 201), 1.0) | (dict.fromkeys(range(2, 202), 2.0) if valid == 2 else {})
    assert rows(table) == expected
    table.history.restore(valid, table.history.record.epoch + 1, DISPATCHER)
    assert rows(table) == expected
    assert table.blobs.get_part(valid, "engine") == b"%d" % valid
    assert table.blobs.get_part(3 - valid, "dense") is None
    train(table, 3)
    checkpoint(table, 3)
    assert rows(opened(tmp_path)) == rows(table)


def test_a_shard_that_dies_before_it_hears_of_the_commit_still_has_the_checkpoint(tmp_path):
    """The other shards may have committed it, and all go back to it together, then on from there and back again."""
    command = [sys.executable, __file__, str(tmp_path), str(SAVED)]
    assert subprocess.run(command, check=False, timeout=240).returncode == -signal.SIGKILL
    table = opened(tmp_path)
    assert table.history.record.last.iteration == 1
    first, second = dict.fromkeys(range(1, 201), 1.0), {1: 1.0} | dict.fromkeys(range(2, 202), 2.0)
    assert rows(table) == first
    table.history.restore(2, table.history.record.epoch + 1, DISPATCHER)
    assert rows(table) == second
    assert table.history.record.last.iteration == 2
    assert table.history.record.last_cut.rows == 201
    assert rows(opened(tmp_path)) == second

    train(table, 3)
    epoch = table.history.record.epoch
    table.history.cut(epoch, 3, 0, 1)
    table.history.save(epoch, 3)
    table.history.commit(epoch, 3, b"3", 3)
    assert rows(opened(tmp_path)) == rows(table)
    for back, expected in ((2, second), (1, first)):
        table.history.restore(back, table.history.record.epoch + 1, DISPATCHER)
        assert rows(table) == expected


if __name__ == "__main__":
    run_until_killed(Path(sys.argv[1]), int(sys.argv[2]))
