"""The contract of every store for a return to a cut: memory, a checkpoint directory, one Redis, a Redis Cluster."""

from __future__ import annotations

import numpy as np
import pytest

from esd.ps_server.core.history_record import HistoryRecord
from esd.services.domain.rows import RowBlock
from tests.support.stores import SPEC, as_dict, assert_rows, blocks_as_dict, gradients_of, open_url, rows_of


def change(table, rng, count):
    """Writes `count` of 400 rows at the next version, in blocks of any size."""
    ids = rng.choice(400, count, replace=False).astype(np.uint64) * np.uint64(2**40 + 1)
    for part in np.array_split(ids, 3):
        block = rows_of(rng, part, 1)
        table.rows.write_newer(RowBlock(part, table.rows.versions(part) + 1, block.rows))


def test_pre_images_lead_back_to_every_cut(table, rng):
    """As a sequence of states: written, cut, written, cut, ...; then back, one cut after the other."""
    change(table, rng, 200)
    cuts, states = [10, 20, 30], {}
    for cut in cuts:
        states[cut] = as_dict(table.rows)
        table.cuts.keep_pre_images(cut)
        change(table, rng, 150)
        change(table, rng, 150)
    for at, cut in enumerate(cuts):
        later = cuts[at + 1 :]
        assert blocks_as_dict(table.cuts.rows_at(cut, later)) == states[cut]
        ids = rng.permutation(400).astype(np.uint64) * np.uint64(2**40 + 1)
        asked = table.cuts.as_of(table.rows.read(ids), cut, later)
        assert blocks_as_dict([asked[asked.versions > 0]]) == states[cut]
    for cut in reversed(cuts):
        assert table.cuts.put_back([cut]) > 0
        assert as_dict(table.rows) == states[cut]
        assert table.rows.totals() == (len(states[cut]), sum(version for version, _ in states[cut].values()))


def test_what_a_cut_holds_is_counted(table, rng):
    """Rows changed since the cut before, and the bytes that they take."""
    change(table, rng, 200)
    table.cuts.keep_pre_images(10)
    assert table.cuts.save(10, 0, 0)[0] == 200
    change(table, rng, 30)
    change(table, rng, 30)
    changed = sum(map(len, table.cuts.rows_at(10, [])))
    table.cuts.keep_pre_images(20)
    count, size = table.cuts.save(20, 10, 10)
    assert 30 <= count <= 60
    assert size >= count * SPEC.row_bytes
    assert changed == 200


def test_a_row_that_was_put_back_can_be_trained_again(table, rng):
    table.cuts.keep_pre_images(5)
    block = rows_of(rng, [1, 2], 1)
    table.rows.write_newer(block)
    assert table.cuts.put_back([5]) == 2
    assert table.rows.versions(block.ids).tolist() == [0, 0]
    assert not table.rows.read(block.ids).rows.any()
    table.cuts.keep_pre_images(5)
    assert table.rows.write_newer(block).all()
    assert_rows(table.rows.read(block.ids), block)
    assert len(table.rows) == 2


def test_rows_of_earlier_lives_are_forgotten_and_come_back_when_put_back(table, rng):
    life = 2**30
    old, new = rows_of(rng, [1, 2, 3, 4], 7), rows_of(rng, [3], life + 2)
    table.rows.write_newer(old)
    table.rows.write_newer(new)
    table.cuts.keep_pre_images(5)
    ids = np.array([1, 2, 3, 9], np.uint64)
    assert [table.rows.forget_older(ids, life) for _ in range(2)] == [2, 0]
    assert table.rows.versions(ids).tolist() == [0, 0, life + 2, 0]
    assert table.rows.totals() == (2, 2 + 7)
    assert sorted(np.concatenate([block.ids for block in table.rows.scan()]).tolist()) == [3, 4]

    reborn = rows_of(rng, [1], life + 1)
    table.rows.write_newer(reborn)
    assert_rows(table.rows.read(reborn.ids), reborn)
    assert table.rows.totals() == (3, 2 + 7 + 1)
    at_cut = {row: version for row, (version, _) in blocks_as_dict(table.cuts.rows_at(5, [])).items()}
    assert at_cut == {1: 7, 2: 7, 3: life + 2, 4: 7}

    assert table.cuts.put_back([5]) == 2
    assert_rows(table.rows.read(old.ids[:2]), old[:2])
    assert table.rows.totals() == (4, 3 * 7 + 2)


def test_pre_images_that_are_dropped_or_not_kept_change_nothing(table, rng):
    table.cuts.keep_pre_images(5)
    change(table, rng, 50)
    table.cuts.drop(5)
    table.cuts.keep_pre_images(None)
    change(table, rng, 50)
    rows = as_dict(table.rows)
    table.cuts.keep_pre_images(6)
    assert table.cuts.put_back([6]) == 0
    assert as_dict(table.rows) == rows


def test_a_cleared_table_is_as_created(table, rng):
    table.rows.write_newer(rows_of(rng, range(300), 1))
    table.partials.add(gradients_of(rng, [7], 0))
    table.rows.clear()
    table.partials.clear()
    assert (len(table.rows), len(table.partials), list(table.rows.scan())) == (0, 0, [])
    change(table, rng, 20)
    assert len(table.rows) == 20


def test_history_and_parts_are_kept(table):
    assert table.history.load() is None
    records = [HistoryRecord(epoch).encode() for epoch in (1, 2)]
    for record in records:
        table.history.save(record)
    assert table.history.load() == records[1]
    table.blobs.put_part(7, "engine", b"old")
    table.blobs.put_part(7, "engine", bytes(range(256)))
    table.blobs.put_part(8, "engine", b"")
    assert table.blobs.get_part(7, "engine") == bytes(range(256))
    assert table.blobs.get_part(7, "dense") is None
    assert table.blobs.checkpoints() == {7, 8}
    table.blobs.drop_parts(7)
    table.blobs.drop_parts(9)
    assert table.blobs.checkpoints() == {8}
    assert table.blobs.get_part(7, "engine") is None
    assert table.blobs.get_part(8, "engine") == b""


@pytest.mark.parametrize("url", ["redis", "redis+cluster"], indirect=True)
def test_redis_keeps_the_way_back_for_the_next_process(url, store, table, rng):
    change(table, rng, 200)
    before = as_dict(table.rows)
    table.cuts.keep_pre_images(3)
    change(table, rng, 200)
    store.close()
    again = open_url(url)
    reopened = again.open(SPEC)
    reopened.cuts.keep_pre_images(3)
    change(reopened, rng, 200)
    reopened.cuts.put_back([3])
    assert as_dict(reopened.rows) == before
    again.close()
