"""Mistakes of a program that sends samples: each is named before anything is sent."""

from __future__ import annotations

from typing import Any

import pytest

import esd


@pytest.mark.parametrize(
    ("method", "samples", "named"),
    [
        ("feed", [], "stream_from is a list, it must be a function .* `submit` takes batches themselves"),
        ("submit", 5, "batches are a int, expected an iterable of esd.SampleBatch"),
    ],
)
def test_what_is_no_stream_is_named(method: str, samples: Any, named: str) -> None:
    with (
        esd.DispatcherClient("127.0.0.1:1", timeout=1.0) as dispatcher,  # where nobody answers, and nobody is asked
        pytest.raises(esd.errors.InvalidArgument, match=named),
    ):
        getattr(dispatcher, method)("job", samples)
