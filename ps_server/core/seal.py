"""A checksum before bytes that must be read back unchanged: samples and dense parameters."""

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
    """Returns the data after a checksum over the data and the name it is stored under."""
    return _digest(name, data) + data


def unsealed(name: str, stored: bytes, place: str, remedy: str) -> bytes:
    """Checks and removes the checksum of `sealed`, and returns the data.

    Args:
        name: the name that `sealed` was called with.
        stored: the stored bytes.
        place: where they are stored, for the error.
        remedy: advice to the operator, for the error.

    Raises:
        FailedPrecondition: the bytes have changed, or were sealed under another name.
    """
    data = stored[_DIGEST_BYTES:]
    if stored[:_DIGEST_BYTES] != _digest(name, data):
        raise FailedPrecondition(f"{place} is damaged: its checksum differs ({len(stored)} bytes are there). {remedy}")
    return data


def _digest(name: str, data: bytes) -> bytes:
    digest = hashlib.blake2b(name.encode() + b"\0", digest_size=_DIGEST_BYTES)
    digest.update(data)
    return digest.digest()
