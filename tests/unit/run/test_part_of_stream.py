"""A run that submits one part of a stream: options that rule over the whole stream are refused."""

from __future__ import annotations

from typing import Any

import pytest

from esd.run.options import RunOptions
from esd.run.stream import simulated_stream, training_stream
from esd.services.domain.errors import InvalidArgument

PART = {"data": "synthetic:zipf?samples=900&fields=2", "submitters": 3, "cache_rows": 100}


@pytest.mark.parametrize(
    ("ruling", "named"),
    [
        ({"iterations": 5}, "--iterations"),
        ({"evaluate_every": 10, "early_stop": "auc:2"}, "--evaluate-every and --early-stop"),
        ({"hot_batches": 2}, "--hot-batches"),
    ],
)
def test_options_that_rule_over_the_whole_stream_are_refused(ruling: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidArgument, match=rf"^{named} would rule over the whole stream, .* one part of 3 "):
        training_stream(RunOptions(**PART, **ruling))


def test_a_part_must_end_and_does_not_tell_the_end_of_the_stream() -> None:
    stream = training_stream(RunOptions(**PART))
    assert (stream.iterations, stream.dataset.samples) == (None, 900)
    assert stream.fingerprint == f"part 0 of 3: {stream.dataset.fingerprint}"
    with pytest.raises(InvalidArgument, match=r"is endless: a part of a stream must end \(\?samples=N\)"):
        training_stream(RunOptions(**PART | {"data": "synthetic:zipf"}))


def test_a_simulation_has_no_other_parts() -> None:
    with pytest.raises(InvalidArgument, match="leave out --submitters, which esd train takes"):
        simulated_stream(RunOptions(**PART), None)
