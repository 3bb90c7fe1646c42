"""Manifests of checkpoints that are not as they were written, which a server may answer with."""

from __future__ import annotations

import json

import pytest

from esd.dispatcher.service.state.manifest import Manifest, SavedWorker
from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.reports import PhaseTimes, TransferCounts

WRITTEN = Manifest({"name": "flights"}, 20, 640, (SavedWorker("w", 1e6, 50, TransferCounts(3), PhaseTimes(0.5)),))


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


def test_another_version_is_refused_by_that() -> None:
    other = json.dumps(json.loads(WRITTEN.encode()) | {"format": 99}).encode()
    with pytest.raises(FailedPrecondition, match="another version"):
        Manifest.decode(other)
