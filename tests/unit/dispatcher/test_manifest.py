"""Manifests of checkpoints that are not as they were written, which a server may answer with."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from esd.dispatcher.service.state.manifest import Manifest, SavedWorker
from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.reports import PhaseTimes, TransferCounts
from esd.services.domain.sources import SourcePosition
from esd.services.domain.stream_parts import StreamPart, StreamPlace

WORKER = SavedWorker("w", 1e6, 50, TransferCounts(3), PhaseTimes(0.5))
PLACE = StreamPlace(
    (StreamPart(4, 400, SourcePosition("7-0", behind=2)), StreamPart(3, 240, ended=True, stream="its south")), given=1
)
WRITTEN = Manifest({"name": "flights", "batch_size": 7}, 20, 640, (WORKER,), place=PLACE)


def test_what_was_written_is_read() -> None:
    assert Manifest.decode(WRITTEN.encode()) == WRITTEN


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"\xff\xfe", b"null", b"[]", b"7", b"{}",
        WRITTEN.encode()[:-1],
        json.dumps(json.loads(WRITTEN.encode()) | {"unheard": 1}).encode(),
        json.dumps(json.loads(WRITTEN.encode()) | {"workers": [{"name": "w"}]}).encode(),
        json.dumps(json.loads(WRITTEN.encode()) | {"evaluations": 3}).encode(),
    ],
)  # fmt: skip
def test_what_is_damaged_is_refused(data: bytes) -> None:
    with pytest.raises(FailedPrecondition, match="manifest of a checkpoint is damaged"):
        Manifest.decode(data)


def test_the_only_source_of_an_earlier_version_is_the_place_of_the_stream() -> None:
    written = json.loads(WRITTEN.encode())
    del written["place"]
    source = SourcePosition("7-0", behind=2)
    for saved, expected in (({}, None), ({"source": None}, None), ({"source": {"text": "7-0", "behind": 2}}, source)):
        found = Manifest.decode(json.dumps(written | saved).encode())
        assert found == replace(WRITTEN, place=StreamPlace((StreamPart(7, 640, expected),)))
    begun = Manifest.decode(json.dumps(written | {"samples": 0, "source": None}).encode())
    assert begun.place is None


def test_another_version_is_refused_by_that() -> None:
    other = json.dumps(json.loads(WRITTEN.encode()) | {"format": 99}).encode()
    with pytest.raises(FailedPrecondition, match="another version"):
        Manifest.decode(other)
