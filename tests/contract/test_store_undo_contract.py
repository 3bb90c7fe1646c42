"""What every store must do to go back to a cut, over memory, a checkpoint directory, one Redis and a Redis Cluster."""

from __future__ import annotations

import numpy as np
import pytest

from ps_server.core.record import Record
from services.domain.rows import RowBlock
from tests.support.stores import SPEC, as_dict, assert_rows, blocks_as_dict, gradients_of, open_url, rows_of


def change(table, rng, count):
    """Writes `count` of 400 rows at the next version, in blocks of any size."""
    ids = rng.choice(400, count, replace=False).astype(np.uint64) * np.uint64(2**40 + 1)
    for part in np.array_split(ids, 3):
        block = rows_of(rng, part, 1)
        table.write_newer(RowBlock(part, table.versions(part) + 1, block.rows))


def test_undo_leads_back_to_every_cut(table, rng):
    """As a sequence of states: written, cut, written, cut, ...; then back, one cut after the other."""
    change(table, rng, 200)
    cuts, states = [10, 20, 30], {}
    for cut in cuts:
        states[cut] = as_dict(table)
        table.keep_undo(cut)
        change(table, rng, 150)
        change(table, rng, 150)
    for at, cut in enumerate(cuts):
        assert blocks_as_dict(table.rows_at(cut, cuts[at + 1 :])) == states[cut]
    for cut in reversed(cuts):
        assert table.undo(cut) > 0
        assert as_dict(table) == states[cut]
        assert table.totals() == (len(states[cut]), sum(version for version, _ in states[cut].values()))


def test_what_a_cut_holds_is_counted(table, rng):
    """Rows changed since the cut before, and the bytes that they take."""
    change(table, rng, 200)
    table.keep_undo(10)
    assert table.save(10, 0)[0] == 200
    change(table, rng, 30)
    change(table, rng, 30)
    changed = sum(map(len, table.rows_at(10, [])))
    table.keep_undo(20)
    count, size = table.save(20, 10)
    assert 30 <= count <= 60
    assert size >= count * SPEC.row_bytes
    assert changed == 200


def test_a_row_that_was_undone_can_be_trained_again(table, rng):
    table.keep_undo(5)
    block = rows_of(rng, [1, 2], 1)
    table.write_newer(block)
    assert table.undo(5) == 2
    assert table.versions(block.ids).tolist() == [0, 0]
    assert not table.read(block.ids).rows.any()
    table.keep_undo(5)
    assert table.write_newer(block).all()
    assert_rows(table.read(block.ids), block)
    assert len(table) == 2


def test_rows_of_earlier_lives_are_taken_out_and_come_back_by_undo(table, rng):
    life = 2**30
    old, new = rows_of(rng, [1, 2, 3, 4], 7), rows_of(rng, [3], life + 2)
    table.write_newer(old)
    table.write_newer(new)
    table.keep_undo(5)
    ids = np.array([1, 2, 3, 9], np.uint64)
    assert [table.take_out_older(ids, life) for _ in range(2)] == [2, 0]
    assert table.versions(ids).tolist() == [0, 0, life + 2, 0]
    assert table.totals() == (2, 2 + 7)
    assert sorted(np.concatenate([block.ids for block in table.scan()]).tolist()) == [3, 4]

    reborn = rows_of(rng, [1], life + 1)
    table.write_newer(reborn)
    assert_rows(table.read(reborn.ids), reborn)
    assert table.totals() == (3, 2 + 7 + 1)
    at_cut = {
        row: version for block in table.rows_at(5, []) for row, version in zip(block.ids, block.versions, strict=True)
    }
    assert at_cut == {1: 7, 2: 7, 3: life + 2, 4: 7}

    assert table.undo(5) == 2
    assert_rows(table.read(old.ids[:2]), old[:2])
    assert table.totals() == (4, 3 * 7 + 2)


def test_undo_that_is_forgotten_or_off_changes_nothing(table, rng):
    table.keep_undo(5)
    change(table, rng, 50)
    table.forget(5)
    table.keep_undo(None)
    change(table, rng, 50)
    rows = as_dict(table)
    table.keep_undo(6)
    assert table.undo(6) == 0
    assert as_dict(table) == rows


def test_a_cleared_table_is_as_created(table, rng):
    table.write_newer(rows_of(rng, range(300), 1))
    table.partials.add(gradients_of(rng, [7], 0))
    table.clear()
    assert (len(table), len(table.partials), list(table.scan())) == (0, 0, [])
    change(table, rng, 20)
    assert len(table) == 20


def test_history_and_parts_are_kept(table):
    assert table.load_history() is None
    records = [Record(epoch).encode() for epoch in (1, 2)]
    for record in records:
        table.save_history(record)
    assert table.load_history() == records[1]
    table.put_part(7, "engine", b"old")
    table.put_part(7, "engine", bytes(range(256)))
    table.put_part(8, "engine", b"")
    assert table.get_part(7, "engine") == bytes(range(256))
    assert table.get_part(7, "dense") is None
    assert table.parts() == {7, 8}
    table.drop_parts(7)
    table.drop_parts(9)
    assert table.parts() == {8}
    assert table.get_part(7, "engine") is None
    assert table.get_part(8, "engine") == b""


@pytest.mark.parametrize("url", ["redis", "redis+cluster"], indirect=True)
def test_redis_keeps_the_way_back_for_the_next_process(url, store, table, rng):
    change(table, rng, 200)
    before = as_dict(table)
    table.keep_undo(3)
    change(table, rng, 200)
    store.close()
    again = open_url(url)
    reopened = again.open(SPEC)
    reopened.keep_undo(3)
    change(reopened, rng, 200)
    reopened.undo(3)
    assert as_dict(reopened) == before
    again.close()
