"""Rows of any number are written in order, and look-ups read only the pages that they need."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from esd.model.files import new_folder
from esd.model.sorted_rows import SortedRows
from esd.model.table import TrainedTable, write_table
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.rows import RowBlock
from esd.services.domain.tables import OptimizerSpec, TableSpec
from tests.support.reference import initial_rows

TABLE = TableSpec("items", 3, OptimizerSpec(), 8, 0.1)


def stored(path, rows):
    """Writes a folder of nothing but the table's rows."""
    with new_folder(path) as writer:
        write_table(writer, TABLE, rows)
        writer.write("config.json", b"{}")
    return TrainedTable(path, TABLE)


def test_look_ups_find_trained_and_initial_rows(tmp_path):
    rng = np.random.default_rng(1)
    ids = np.unique(rng.integers(0, 2**63, 500).astype(np.uint64))[rng.permutation(500)]
    values, versions = rng.normal(size=(500, 3)).astype(np.float32), rng.integers(1, 9, 500)
    with SortedRows(3, tmp_path) as rows:
        rows.add(RowBlock(ids, versions + 2**31, values))  # in a later life, whose trainings alone are written
        table = stored(tmp_path / "model", rows)
    order = np.argsort(ids)
    np.testing.assert_array_equal(table.ids, ids[order])
    np.testing.assert_array_equal(table.versions, versions[order])
    np.testing.assert_array_equal(table.rows, values[order])

    new = np.setdiff1d(rng.integers(0, 2**63, 20).astype(np.uint64), ids)
    found = table.look_up(np.concatenate([ids[:30], new, ids[:2]]))
    np.testing.assert_array_equal(found[:30], values[:30])
    np.testing.assert_array_equal(found[30:-2], initial_rows(TABLE, new))
    np.testing.assert_array_equal(found[-2:], values[:2])


def test_a_table_without_rows_gives_initial_rows(tmp_path):
    with SortedRows(3, tmp_path) as rows:
        table = stored(tmp_path / "model", rows)
    ids = np.array([5, 2, 5], np.uint64)
    np.testing.assert_array_equal(table.look_up(ids), initial_rows(TABLE, ids))


def test_files_of_another_table_are_refused(tmp_path):
    with SortedRows(3, tmp_path) as rows:
        stored(tmp_path / "model", rows)
    wider = TableSpec("items", 4, OptimizerSpec(), 8, 0.1)
    with pytest.raises(InvalidArgument, match=r"rows.npy is float32 of shape \(0, 3\), it must be <f4 of rows \(4,\)"):
        TrainedTable(tmp_path / "model", wider)


# A table of 200 MB, and 60 MB for the rows at hand.
LIMITED = """
import resource, sys
from pathlib import Path
import numpy as np
from esd.model.files import new_folder
from esd.model.sorted_rows import SortedRows
from esd.model.table import TrainedTable, write_table
from esd.services.domain.rows import RowBlock
from esd.services.domain.tables import OptimizerSpec, TableSpec

BLOCKS, ROWS, DIMENSION = 50, 15_000, 64
place, table = Path(sys.argv[1]), TableSpec("items", DIMENSION, OptimizerSpec(), 8, 0.1)
used = next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmData"))
resource.setrlimit(resource.RLIMIT_DATA, (used + (60 << 20),) * 2)
with SortedRows(DIMENSION, place, run_bytes=8 << 20) as rows, new_folder(place / "model") as writer:
    for block in range(BLOCKS):
        ids = (np.arange(ROWS, dtype=np.uint64) * BLOCKS + block) * np.uint64(7)
        values = np.repeat(ids[:, None], DIMENSION, axis=1).astype(np.float32)
        rows.add(RowBlock(ids, np.ones(ROWS, np.int64), values))
    write_table(writer, table, rows)
    writer.write("config.json", b"{}")
loaded = TrainedTable(place / "model", table)
assert loaded.rows.nbytes > 1.9e8, loaded.rows.nbytes
wanted = np.random.default_rng(0).choice(BLOCKS * ROWS, 1000).astype(np.uint64) * np.uint64(7)
assert (loaded.look_up(wanted)[:, 0] == wanted.astype(np.float32)).all()
try:
    np.ones(100 << 20, np.uint8)
except MemoryError:
    print("limited")
"""


def test_memory_does_not_grow_with_the_table(tmp_path):
    run = subprocess.run([sys.executable, "-c", LIMITED, str(tmp_path)], capture_output=True, text=True, check=False)
    assert run.stdout == "limited\n", run.stderr
