"""A run on a log that goes on where the stream of an earlier run ended: two in a row are one over the whole stream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import redis

from esd.data.logs import LogDataset
from esd.run.options import RunOptions
from esd.services.domain.errors import EsdError, FailedPrecondition, InvalidArgument
from esd.services.domain.tables import OptimizerKind
from tests.support import training
from tests.support.clicks import KEY, SCHEMA, clicks
from tests.support.log_brokers import BROKERS, LogBroker
from tests.support.models import assert_same_model

SIZE, FIRST, SECOND = 48, 15, 20  # samples of an iteration, and iterations of the runs
STORE = {"store": "memory", "shards": 1}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogBroker]:
    with BROKERS["valkey"](tmp_path_factory.mktemp("broker")) as broker:
        broker.add(clicks((FIRST + SECOND) * SIZE), 0)
        with redis.Redis(port=int(broker.address.rpartition(":")[2].partition("/")[0])) as client:
            client.copy(KEY, f"{KEY}2")
        yield broker


@pytest.fixture
def options(broker: LogBroker) -> RunOptions:
    """One worker: the order of sums, which depends on the dispatch, is then the same in any run."""
    return RunOptions(
        data=broker.address, schema=SCHEMA, workers=1, links="1g", batch=SIZE, dim=4, cache_rows=400,
        optimizer=OptimizerKind.ADAM, learning_rate=0.004, checkpoint_every=10, seed=3,
    )  # fmt: skip


def test_two_runs_in_a_row_are_one_over_the_whole_stream(options: RunOptions, tmp_path: Path) -> None:
    """Bit by bit. The first one ends within a chunk of messages, the second at the end of its window."""
    whole = replace(options, iterations=FIRST + SECOND)
    training.run(whole, **STORE, checkpoint_dir=tmp_path / "one", out=tmp_path / "whole", table="clicks")
    kept = STORE | {"checkpoint_dir": tmp_path / "two"}
    training.run(replace(options, iterations=FIRST), **kept, out=None, table="clicks")
    second = replace(options, iterations=SECOND)
    result = training.run(second, **kept, out=tmp_path / "second", continue_from="clicks", continue_stream=True)
    assert (result["iterations"], result["samples"]) == (SECOND, SECOND * SIZE)
    assert_same_model(tmp_path / "second", tmp_path / "whole")

    # The command that is repeated finds its own run finished, and does not go on once more.
    again = training.run(second, **kept, out=None, continue_from="clicks", continue_stream=True)
    assert again["iterations"] == SECOND


def test_a_window_goes_on_in_the_next_one(options: RunOptions, tmp_path: Path) -> None:
    places = [batch.source.text for batch in LogDataset(f"{options.data}?until=2024-01-01", SCHEMA, SIZE)]
    middle = places[FIRST].partition(":")[0]
    kept = STORE | {"checkpoint_dir": tmp_path / "two"}
    first = replace(options, data=f"{options.data}?until={middle}")
    assert training.run(first, **kept, out=None, table="clicks")["samples"] == FIRST * SIZE
    rest = replace(options, data=f"{options.data}?until=2024-01-01")
    result = training.run(rest, **kept, out=tmp_path / "second", continue_from="clicks", continue_stream=True)
    assert result["samples"] == SECOND * SIZE


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        (
            {"data": "synthetic:zipf?samples=480&fields=2"},
            InvalidArgument,
            "goes on in a log .*and these data are none",
        ),
        ({"data": "?from=1700000000005-0"}, InvalidArgument, "leave out from=1700000000005-0"),
        ({"data": "2"}, FailedPrecondition, "has trained stream clicks, schema .* would go on in stream clicks2"),
    ],
    ids=["no log", "another beginning", "another log"],
)
def test_what_cannot_go_on_is_refused_by_name(
    options: RunOptions, broker: LogBroker, tmp_path: Path, changes: dict[str, str], error: type[EsdError], text: str
) -> None:
    kept = STORE | {"checkpoint_dir": tmp_path}
    training.run(replace(options, iterations=2), **kept, out=None, table="clicks")
    data = changes["data"]
    own = {"data": data, "schema": None} if data.startswith("synthetic") else {"data": options.data + data}
    with pytest.raises(error, match=text):
        training.run(replace(options, iterations=2, **own), **kept, continue_from="clicks", continue_stream=True)
