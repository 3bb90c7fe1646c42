"""Names by which parameter servers know whose a table is: random, so that no two are the same.

A dispatcher has one for the epochs that it begins, and a job without checkpoints, which begins none, one of its own.
"""

from __future__ import annotations

import secrets

from esd.services.domain.errors import InvalidArgument

CLAIMANT_BYTES = 16


def new_claimant() -> bytes:
    """Returns a name that nobody else has."""
    return secrets.token_bytes(CLAIMANT_BYTES)


def check_claimant(name: bytes) -> bytes:
    """Returns the name. Raises InvalidArgument if it is none."""
    if len(name) != CLAIMANT_BYTES:
        raise InvalidArgument(
            f"claimant has {len(name)} bytes, it must be {CLAIMANT_BYTES} random ones, which name the caller"
        )
    return name
