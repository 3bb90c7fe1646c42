"""A checksum in front of bytes that must come back as they were: samples, dense parameters."""

from __future__ import annotations

import hashlib

from esd.services.domain.errors import FailedPrecondition

_DIGEST_BYTES = 16

LOG_REMEDY = (
    "`esd checkpoint restore` of the last checkpoint drops a damaged sample log; the samples that follow must be sent "
    "again, which `esd train` does by itself"
)
DENSE_REMEDY = "Repeat the command of the job, which stores them again"


def sealed(name: str, data: bytes) -> bytes:
    """Returns data with a checksum over it and over the name that it is kept under."""
    return _digest(name, data) + data


def unsealed(name: str, stored: bytes, place: str, remedy: str) -> bytes:
    """Returns what `sealed` was given.

    Args:
        name: as given to `sealed`.
        stored: what was kept.
        place: where, for the error.
        remedy: what to do, for the error.

    Raises:
        FailedPrecondition: it is not as it was sealed, or was sealed under another name.
    """
    data = stored[_DIGEST_BYTES:]
    if stored[:_DIGEST_BYTES] != _digest(name, data):
        raise FailedPrecondition(f"{place} is damaged: its checksum differs ({len(stored)} bytes are there). {remedy}")
    return data


def _digest(name: str, data: bytes) -> bytes:
    digest = hashlib.blake2b(name.encode() + b"\0", digest_size=_DIGEST_BYTES)
    digest.update(data)
    return digest.digest()
