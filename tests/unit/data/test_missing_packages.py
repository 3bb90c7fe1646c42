"""A package that a reader needs and that is not installed is named, with the command that installs it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from esd.data.log_address import parse_log
from esd.data.logs.opening import open_log
from esd.data.opening import table_reader
from esd.data.remote import remote_files
from esd.services.domain.errors import NotFound


@pytest.mark.parametrize(
    ("module", "read", "refusal"),
    [
        ("esd.data.tables", table_reader, r"reader of tables needs pyarrow,.*esd-train\[tables\]"),
        ("pyarrow.fs", lambda: list(remote_files("s3://b/f")), r"remote files needs pyarrow,.*esd-train\[tables\]"),
        (
            "esd.data.logs.nats_stream",
            lambda: open_log(parse_log("nats://127.0.0.1:1/clicks")),
            r"such logs needs nats-py,.*esd-train\[nats\]",
        ),
        (
            "esd.data.logs.kafka_topic",
            lambda: open_log(parse_log("kafka://127.0.0.1:1/clicks")),
            r"such logs needs confluent-kafka,.*esd-train\[kafka\]",
        ),
    ],
    ids=["tables", "remote files", "nats", "kafka"],
)
def test_a_missing_package_is_named_with_its_extra(
    module: str, read: Callable[[], Any], refusal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)  # as if it could not be imported
    with pytest.raises(NotFound, match=refusal):
        read()
