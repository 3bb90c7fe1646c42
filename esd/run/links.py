"""Link speeds as people write them: `5g`, `500m`, `62.5k`, in bits per second."""

from __future__ import annotations

import re

from esd.services.domain.errors import InvalidArgument

_SPEED = re.compile(r"(\d+(?:\.\d+)?)([kmg]?)")
_FACTOR = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}


def parse_link(text: str) -> float:
    """Returns the bytes per second of a link written in bits per second (`500m` is 62.5 MB/s)."""
    match = _SPEED.fullmatch(text.strip().lower())
    if match is None or float(match[1]) == 0:
        raise InvalidArgument(f"link speed {text!r} is not a positive number of bits per second such as 500m or 5g")
    return float(match[1]) * _FACTOR[match[2]] / 8


def parse_links(text: str, workers: int) -> tuple[float, ...]:
    """Returns the bytes per second of every worker's link, from a comma-separated list of one or `workers` speeds."""
    speeds = tuple(parse_link(part) for part in text.split(","))
    if len(speeds) == 1:
        return speeds * workers
    if len(speeds) != workers:
        raise InvalidArgument(f"--links names {len(speeds)} links for {workers} workers")
    return speeds
