"""The notes of changed rows: ids for readers, bounds, losses, and no notes without a reader."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from esd.native.rows import ChangedRows, HeldFrame, WaitingRows
from esd.protos import ps_pb2
from esd.ps_server.core.table import Table
from esd.services.wire.rows import encode_gradients, encode_rows
from tests.support.stores import DISPATCHER
from tests.unit.ps_server.test_ps_table import gradients_of, make_table, rows_at

ENOUGH = 2**20


def ids_of(*ids: int) -> np.ndarray:
    return np.array(ids, np.uint64)


def read(changed: ChangedRows, after: int) -> tuple[int, list[int]] | None:
    answer = changed.read(after)
    return None if answer is None else (answer[0], answer[2].tolist())


def test_a_reader_gets_each_id_once_and_goes_on_from_there() -> None:
    changed = ChangedRows(ENOUGH)
    begun = changed.begin()
    changed.add(ids_of(7, 0, 2**64 - 1, 7))
    assert read(changed, begun) == (begun + 1, [0, 7, 2**64 - 1])
    changed.add(ids_of(7, 8))
    assert read(changed, begun + 1) == (begun + 2, [7, 8])
    assert read(changed, begun + 2) == (begun + 2, [])
    assert read(changed, begun) == (begun + 2, [0, 7, 8, 2**64 - 1]), "a slower reader misses nothing"


def test_the_age_is_that_of_the_first_change_and_0_without_any() -> None:
    changed = ChangedRows(ENOUGH)
    before = changed.read(0)
    assert before is not None
    assert before[1] == 0
    changed.add(ids_of(1))
    first = changed.read(0)
    changed.add(ids_of(2))
    second = changed.read(0)
    assert first is not None
    assert second is not None
    assert second[1] > first[1] > 0


def test_a_reader_that_comes_too_late_or_from_elsewhere_begins_anew() -> None:
    changed = ChangedRows(2**16)
    begun = changed.begin()
    for start in range(0, 20_000, 1000):
        changed.add(np.arange(start, start + 1000, dtype=np.uint64))
        last = changed.read(changed.begin())
        assert last is not None
    assert changed.read(begun) is None
    assert changed.memory_bytes < 3 * 2**16
    kept = read(changed, last[0] - 2)
    assert kept == (last[0], list(range(18_000, 20_000)))
    assert changed.read(last[0] + 1) is None


def test_more_ids_than_may_gather_are_dropped_for_every_reader() -> None:
    changed = ChangedRows(2**16)
    begun = changed.begin()
    changed.add(np.arange(10_000, dtype=np.uint64))
    assert changed.memory_bytes < 3 * 2**16
    assert changed.read(begun) is None
    again = changed.begin()
    changed.add(ids_of(5))
    answer = read(changed, again)
    assert answer is not None
    assert 5 in answer[1]


def test_readers_begin_anew_after_a_loss() -> None:
    changed = ChangedRows(ENOUGH)
    begun = changed.begin()
    changed.add(ids_of(1))
    changed.lose()
    assert changed.read(begun) is None
    assert read(changed, changed.begin()) is not None


def frame(**parts: object) -> HeldFrame:
    request = ps_pb2.ExchangeRequest(sequence=1, table="t")
    if "rows" in parts:
        encode_rows(parts["rows"], request.rows)  # type: ignore[arg-type]
    if "gradients" in parts:
        encode_gradients(parts["gradients"], request.gradients)  # type: ignore[arg-type]
    return HeldFrame(request.SerializeToString())


def at_once(table: Table, frames: Iterable[HeldFrame]) -> None:
    for each in frames:
        applied = table.apply_at_once(each, WaitingRows(), 100)
        assert applied is not None
        assert applied.good


@pytest.mark.parametrize("native", [True, False])
def test_all_ways_to_change_a_row_are_noted_and_nothing_else(native: bool) -> None:
    table = make_table()
    table.changed = ChangedRows(ENOUGH)
    rows, stale = rows_at([1, 2], 5), rows_at([2, 3], 4)
    parts = [gradients_of(worker, [8, 9], 1, 0b11) for worker in (0, 1)]
    if native:
        at_once(table, [frame(rows=rows), frame(rows=stale), frame(gradients=parts[0])])
    else:
        for block in (rows, stale):
            table.push_rows(block)
        table.push_gradients(parts[0])
    assert read(table.changed, 0) == (1, [1, 2, 3]), "no row that was not newer, and no gradient that waits"
    if native:
        at_once(table, [frame(gradients=parts[1])])
    else:
        table.push_gradients(parts[1])
    assert read(table.changed, 1) == (2, [8, 9])
    assert table.forget(ids_of(1), 2**30, 0) == 1
    assert read(table.changed, 2) == (3, [1])


def test_a_push_that_is_repeated_because_it_failed_half_way_is_noted() -> None:
    table = make_table()
    rows, parts = rows_at([1, 2], 1), [gradients_of(worker, [8], 1, 0b11) for worker in (0, 1)]
    table.push_rows(rows)
    for part in parts:
        table.push_gradients(part)
    table.changed = ChangedRows(ENOUGH)  # as if the rows had been written, and the store had failed before the notes
    table.push_rows(rows)
    table.push_gradients(parts[1])
    assert read(table.changed, 0) == (1, [1, 2, 8])


def test_a_restore_has_every_reader_begin_anew() -> None:
    table = make_table()
    table.push_rows(rows_at([1], 1))
    table.changed = ChangedRows(ENOUGH)
    begun = table.changed.begin()
    table.restore(0, 1, DISPATCHER)
    assert table.changed.read(begun) is None


def test_without_a_reader_nothing_is_noted() -> None:
    table = make_table()
    table.push_rows(rows_at([1], 1))
    at_once(table, [frame(rows=rows_at([2], 1))])
    assert table.changed is None
    table.changed = ChangedRows(ENOUGH)
    empty = table.changed.memory_bytes
    noted, table.changed = table.changed, None
    table.push_rows(rows_at([1, 3], 2))
    at_once(table, [frame(rows=rows_at([2], 3))])
    assert read(noted, 0) == (0, [])
    assert noted.memory_bytes == empty
