"""How epochs begin, over memory, a checkpoint directory, one Redis and a Redis Cluster."""

from __future__ import annotations

import numpy as np
import pytest

from esd.ps_server.core.shard import Shard
from esd.ps_server.core.tables import Tables
from esd.services.domain.errors import FailedPrecondition, StaleEpoch
from tests.support.stores import ANOTHER, DISPATCHER, SPEC, blocks_as_dict, open_url, rows_of

IDS = np.arange(40, dtype=np.uint64)


@pytest.fixture
def served(store):
    """The table as a server has it, trained once, with checkpoint 10 behind that."""
    tables = Tables(store, Shard())
    tables.create(SPEC)
    table = tables.get(SPEC.name)
    table.push_rows(rows_of(np.random.default_rng(1), IDS, 1))
    table.history.cut(0, 10, 0, 1)
    table.history.save(0, 10)
    table.history.commit(0, 10, b"manifest", 2)
    return table


def test_a_way_back_that_comes_again_takes_nothing_back(served, rng):
    """As an attempt that its caller had given up, and that runs when the epoch trains already."""
    served.push_rows(rows_of(rng, IDS, 2))
    assert served.history.restore(10, 1, DISPATCHER) == len(IDS)
    trained = rows_of(rng, IDS, 2)
    served.push_rows(trained, 1)
    served.history.cut(1, 20, 0, 1)
    assert served.history.restore(10, 1, DISPATCHER) == 0
    assert blocks_as_dict(served.scan()) == blocks_as_dict([trained])
    assert served.history.record.iterations == (10, 20)
    with pytest.raises(FailedPrecondition, match=r"epoch 1 .* has begun at checkpoint 10; .* later epoch can .* 20"):
        served.history.restore(20, 1, DISPATCHER)
    assert served.history.restore(10, 2, DISPATCHER) == len(IDS)
    with pytest.raises(StaleEpoch, match=r"epoch 1 cannot begin, table .* is in epoch 2"):
        served.history.restore(10, 1, DISPATCHER)


def test_rows_that_come_after_a_cut_do_not_count_as_changed_by_it(store, rng):
    tables = Tables(store, Shard())
    tables.create(SPEC)
    table = tables.get(SPEC.name)
    table.push_rows(rows_of(rng, IDS, 1))
    table.history.cut(0, 10, 0, 1)
    table.push_rows(rows_of(rng, IDS + 20, 2))
    assert table.history.save(0, 10)[0] == len(IDS)
    table.history.commit(0, 10, b"manifest", 2)
    table.history.cut(0, 20, 0, 1)
    assert table.history.save(0, 20)[0] == len(IDS)


def test_an_epoch_that_has_begun_can_still_go_back_once(served, rng):
    """As at the first server, whose epoch begins before it is asked to go back."""
    served.push_rows(rows_of(rng, IDS, 2))
    served.history.begin_epoch(1, DISPATCHER, takes_over=False)
    assert served.history.restore(10, 1, DISPATCHER) == len(IDS)
    served.push_rows(rows_of(rng, IDS, 2), 1)
    served.history.begin_epoch(1, DISPATCHER, takes_over=False)  # again, late
    assert served.history.restore(10, 1, DISPATCHER) == 0


@pytest.mark.parametrize("url", ["redis", "redis+cluster"], indirect=True)
def test_a_server_that_takes_over_knows_that_the_epoch_has_gone_back(served, store, rng):
    served.history.restore(10, 1, DISPATCHER)
    served.push_rows(rows_of(rng, IDS, 2), 1)
    again = Tables(store, Shard()).get(SPEC.name)
    assert again.history.restore(10, 1, DISPATCHER) == 0
    assert (again.read(IDS).versions == 2).all()


@pytest.mark.parametrize("url", ["directory", "objects"], indirect=True)
def test_an_epoch_that_a_server_begins_by_itself_can_go_back(served, store, rng, url):
    served.history.restore(10, 1, DISPATCHER)
    served.push_rows(rows_of(rng, IDS, 2), 1)
    store.close()
    taken = open_url(url)
    again = Tables(taken, Shard()).get(SPEC.name)
    assert again.history.record.epoch == 2
    again.push_rows(rows_of(rng, IDS, 2), 2)
    assert again.history.restore(10, 2, DISPATCHER) == len(IDS)
    taken.close()


@pytest.mark.parametrize("restores", [False, True])
def test_an_epoch_is_given_to_one_dispatcher(served, restores):
    """Two that have looked at the table at the same moment ask for the same number."""
    history = served.history

    def begin(epoch, claimant):
        if restores:
            history.restore(10, epoch, claimant)
        else:
            history.begin_epoch(epoch, claimant, takes_over=True)

    begin(1, DISPATCHER)
    begin(1, DISPATCHER)  # repeated
    with pytest.raises(StaleEpoch, match=r"another dispatcher has begun epoch 1 of table .*; begin a later one, or"):
        begin(1, ANOTHER)
    begin(2, ANOTHER)
    for epoch, text in ((1, "epoch 1 cannot begin, table .* is in epoch 2"), (2, "another dispatcher")):
        with pytest.raises(StaleEpoch, match=text):
            begin(epoch, DISPATCHER)
    assert history.record.epoch == 2


def test_whoever_was_replaced_begins_no_epoch_but_by_taking_over(served):
    history = served.history
    history.begin_epoch(1, DISPATCHER, takes_over=False)  # nobody's so far
    history.begin_epoch(2, ANOTHER, takes_over=True)
    for epoch in (1, 2, 3):
        with pytest.raises(
            FailedPrecondition, match=r"another dispatcher has taken table .* over, with epoch 2"
        ) as end:
            history.begin_epoch(epoch, DISPATCHER, takes_over=False)
        assert not isinstance(end.value, StaleEpoch), "nothing to try again"
    history.begin_epoch(3, ANOTHER, takes_over=False)
    history.begin_epoch(4, DISPATCHER, takes_over=True)


@pytest.mark.parametrize("url", ["redis", "redis+cluster", "directory", "objects"], indirect=True)
def test_a_server_that_is_started_again_knows_whose_table_it_is(served, store, url):
    served.history.restore(10, 1, DISPATCHER)
    store.close()
    taken = open_url(url)
    again = Tables(taken, Shard()).get(SPEC.name).history
    own = again.record.epoch
    assert own == (1 if str(url).startswith("redis") else 2), "one that has lost rows begins an epoch by itself"
    with pytest.raises(FailedPrecondition, match="another dispatcher has taken table"):
        again.begin_epoch(own + 1, ANOTHER, takes_over=False)
    if own == 2:  # it is nobody's
        again.begin_epoch(own, ANOTHER, takes_over=True)
    with pytest.raises(FailedPrecondition, match="another dispatcher"):
        again.restore(10, own, DISPATCHER if own == 2 else ANOTHER)
    taken.close()
