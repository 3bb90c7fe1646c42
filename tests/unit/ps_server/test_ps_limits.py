"""Requests of no honest peer: epochs out of reach, parts of checkpoints that are never made, tables without end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from esd.ps_server.core.shard import Shard
from esd.ps_server.core.tables import Tables
from esd.ps_server.stores.memory import MemoryStore
from esd.services.domain.errors import FailedPrecondition, InvalidArgument, ResourceExhausted
from tests.support.stores import DISPATCHER, SPEC, open_url


@pytest.fixture
def table():
    tables = Tables(MemoryStore(), Shard())
    tables.create(SPEC)
    return tables.get(SPEC.name)


def commit(table, checkpoint, keep=2):
    table.history.cut(0, checkpoint, 0, 1)
    table.history.commit(0, checkpoint, b"manifest", keep)


@pytest.mark.parametrize("epoch", [2**64 - 1, 2**53, 2**20 + 1])
def test_no_epoch_leaves_its_successors_no_room(table, epoch):
    history = table.history
    for begin in (
        lambda: history.restore(0, epoch, DISPATCHER),
        lambda: history.begin_epoch(epoch, DISPATCHER, takes_over=True),
    ):
        with pytest.raises(
            InvalidArgument, match=rf"epoch {epoch} cannot begin.* is in epoch 0, .*at most 1048576 above"
        ):
            begin()
    table.history.restore(0, 7, DISPATCHER)
    assert table.history.record.epoch == 7


def test_parts_are_kept_of_checkpoints_that_are_being_made_only(table):
    table.history.put_part(5, "engine", b"first", 0)
    table.history.put_part(5, "engine", b"again", 0)
    commit(table, 5)
    for checkpoint in (5, 4, 0):
        with pytest.raises(
            FailedPrecondition, match=f"checkpoint {checkpoint} of .* is not being made: checkpoint 5 is"
        ):
            table.history.put_part(checkpoint, "engine", b"other", 0)
    assert table.blobs.get_part(5, "engine") == b"again"


def test_parts_that_nobody_commits_are_bounded(table):
    for checkpoint in range(1, 9):
        table.history.put_part(checkpoint, "engine", b"", 0)
    with pytest.raises(ResourceExhausted, match=r"checkpoints \[1, 2, .*8\] .* are not committed; no more than 8"):
        table.history.put_part(9, "engine", b"", 0)
    for piece in range(1, 4096):
        table.history.put_part(8, f"engine-{piece}", b"", 0)
    with pytest.raises(ResourceExhausted, match=r"has 4096 parts, and 'h' would be another; no more than 4096"):
        table.history.put_part(8, "h", b"", 0)
    commit(table, 8)  # which drops what was left of those before
    assert table.blobs.checkpoints() == {8}
    for checkpoint in range(9, 16):
        table.history.put_part(checkpoint, "engine", b"", 0)


def test_parts_that_were_never_committed_do_not_stay_over_a_restart(tmp_path):
    store = open_url(tmp_path)
    tables = Tables(store, Shard())
    tables.create(SPEC)
    history = tables.get(SPEC.name).history
    history.begin_epoch(1, DISPATCHER, takes_over=False)
    history.put_part(99, "engine", b"of a checkpoint that nobody makes", 1)
    store.close()
    again = open_url(tmp_path)
    assert Tables(again, Shard()).get(SPEC.name).blobs.checkpoints() == set()
    again.close()


def test_the_number_of_tables_has_a_limit(tmp_path):
    tables = Tables(MemoryStore(), Shard(), limit=2)
    assert [tables.create(replace(SPEC, name=name)) for name in ("a", "b", "b")] == [True, True, False]
    with pytest.raises(ResourceExhausted, match=r"table 'c' is not created: there are 2 tables, .*ESD_PS_MAX_TABLES"):
        tables.create(replace(SPEC, name="c"))
