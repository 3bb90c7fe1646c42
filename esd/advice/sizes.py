"""Sizes of memory as people write them: `2g`, `512m`, in bytes."""

from __future__ import annotations

import re

from esd.services.domain.errors import InvalidArgument

_SIZE = re.compile(r"(\d+(?:\.\d+)?)([kmg]?)")
_FACTOR = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}


def parse_size(text: str) -> float:
    """Returns the bytes of a size (`512m` is 512,000,000). Raises InvalidArgument if it is not a positive number."""
    match = _SIZE.fullmatch(text.strip().lower())
    if match is None or float(match[1]) == 0:
        raise InvalidArgument(f"size {text!r} is not a positive number of bytes such as 512m or 2g")
    return float(match[1]) * _FACTOR[match[2]]
