"""The pre-images of the native row table, and its set of ids, against a copy of the table at the cut."""

from __future__ import annotations

import numpy as np
import pytest

from esd.native.rows import IdSet, PreImages, RowTable
from esd.ps_server.stores.row_streams import scan
from tests.support.stores import blocks_as_dict

WIDTH = 3


def as_dict(rows):
    return blocks_as_dict(scan(rows, 7))


def changed_table(rng):
    """A table with pre-images, the rows that it had at the cut, and the ids that were changed since."""
    table, kept = RowTable(WIDTH), PreImages(WIDTH)
    universe = np.append(rng.integers(0, 2**64, 400, dtype=np.uint64), np.uint64(0))  # 0 is an id as any other
    table.write_newer(universe[::2], np.full(201, 2**30 + 1), rng.random((201, WIDTH), np.float32))
    at_cut, changed = as_dict(table), set()
    for life in range(1, 8):
        ids = rng.choice(universe, 30, replace=False)
        gone = ids[(table.versions(ids) > 0) & (table.versions(ids) < life * 2**30)]
        assert table.forget_older(ids, life * 2**30, kept) == len(gone)
        written = rng.choice(universe, 30, replace=False)
        stored = table.write_newer(written, rng.integers(1, 9, 30) * 2**30, rng.random((30, WIDTH), np.float32), kept)
        changed |= {*gone.tolist(), *written[stored].tolist()}
    return table, kept, universe, at_cut, changed


@pytest.mark.parametrize("seed", range(5))
def test_pre_images_lead_back_to_the_cut(seed):
    table, kept, universe, at_cut, changed = changed_table(np.random.default_rng(seed))
    assert as_dict(table) != at_cut
    assert len(kept) == len(changed)
    assert set(universe[kept.kept(universe)].tolist()) == changed
    versions, rows = table.read(universe)
    kept.overlay(universe, versions, rows)
    before = RowTable(WIDTH)
    before.overwrite(universe, versions, rows)
    assert as_dict(before) == at_cut
    assert (rows[versions == 0] == 0).all()
    ids = []
    for block in scan(kept, 7):  # puts the table back, as a restore does
        table.overwrite(block.ids, block.versions, block.rows)
        ids += block.ids.tolist()
    assert as_dict(table) == at_cut
    assert sorted(ids) == sorted(changed)


def test_rows_that_did_not_exist_at_the_cut_take_the_space_of_their_ids():
    table, kept = RowTable(512), PreImages(512)
    ids = np.arange(200_000, dtype=np.uint64)
    for part in np.split(ids, 100):
        table.write_newer(part, np.ones(2000, np.int64), np.zeros((2000, 512), np.float32), kept)
    assert len(kept) == len(ids)
    assert kept.memory_bytes < 15 * len(ids)
    assert table.memory_bytes < (512 * 4 + 16 + 15) * len(ids)


def test_a_set_of_ids_knows_what_it_has():
    rng = np.random.default_rng(0)
    ids, known, reference = IdSet(), [], set()
    for _ in range(300):
        drawn = np.concatenate([rng.integers(0, 2**64, 20, dtype=np.uint64), rng.integers(0, 50, 20, dtype=np.uint64)])
        known += [not (each in reference or reference.add(each)) for each in drawn.tolist()]
        assert ids.add(drawn).tolist() == known[-40:]
    assert len(ids) == len(reference)
    assert not ids.add(np.array(sorted(reference), np.uint64)).any()


def test_arrays_of_another_shape_are_refused():
    kept, ids = PreImages(WIDTH), np.arange(3, dtype=np.uint64)
    with pytest.raises(ValueError, match="width"):
        kept.overlay(ids, np.ones(3, np.int64), np.zeros((3, 4), np.float32))
    with pytest.raises(ValueError, match="length"):
        kept.overlay(ids, np.ones(2, np.int64), np.zeros((3, 3), np.float32))
    with pytest.raises(ValueError, match="width"):
        RowTable(4).write_newer(ids, np.ones(3, np.int64), np.zeros((3, 4), np.float32), kept)
