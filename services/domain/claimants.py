"""The names by which parameter servers know the owner of a table: random, so that no two are the same.

A dispatcher has one name for the epochs that it begins. A job without checkpoints, which begins no epochs, has its own.
"""

from __future__ import annotations

import secrets

from esd.services.domain.errors import InvalidArgument

CLAIMANT_BYTES = 16


def new_claimant() -> bytes:
    """Returns a new random name."""
    return secrets.token_bytes(CLAIMANT_BYTES)


def check_claimant(name: bytes) -> bytes:
    """Returns the name. Raises InvalidArgument if its length is wrong."""
    if len(name) != CLAIMANT_BYTES:
        raise InvalidArgument(
            f"claimant has {len(name)} bytes, it must be {CLAIMANT_BYTES} random bytes that identify the caller"
        )
    return name
