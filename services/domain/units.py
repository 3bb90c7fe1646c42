"""Speeds and sizes as people write them, in options, environment variables and files alike.

speeds     500m, 62.5k, 5g, 50 Mbit/s      bits per second; k, m and g are powers of 1,000
sizes      64MiB, 2g, 512m, 1GB, 4096      bytes; KiB, MiB, GiB, k, m and g are powers of 1,024, as of container
engines; KB, MB and GB are powers of 1,000
"""

from __future__ import annotations

import re

from esd.services.domain.errors import InvalidArgument

_SPEED = re.compile(r"(\d+(?:\.\d+)?)\s*([kmg]?)(bit/s|bps)?")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmg])(i?b)?|b)?")
_POWER = {"": 0, "k": 1, "m": 2, "g": 3}
LEAST_SPEED = 125.0  # bytes per second: a thousandth of any link that rows have a use for, so its unit was left out


def parse_speed(text: str) -> float:
    """Returns the bytes per second of a speed that is written in bits per second: `500m` is 62.5 MB/s.

    Raises:
        InvalidArgument: the text is no speed, or is one below 1 kbit/s.
    """
    match = _SPEED.fullmatch(text.strip().lower())
    if match is None or text.strip().endswith("B/s") or float(match[1]) == 0:
        raise InvalidArgument(f"link speed {text!r} is not a positive number of bits per second such as 500m or 5g")
    speed = float(match[1]) * 1000.0 ** _POWER[match[2]] / 8
    if speed < LEAST_SPEED:
        raise InvalidArgument(f"link speed {text!r} is {8 * speed:g} bits per second: write {match[1]}m for megabits")
    return speed


def parse_link(text: str) -> float:
    """Returns the bytes per second of a worker's link: of a speed with its unit, or of a number of bytes per second.

    Raises:
        InvalidArgument: the text is neither, or the speed is below 1 kbit/s.
    """
    try:
        speed = float(text)
    except ValueError:
        return parse_speed(text)
    if not LEAST_SPEED <= speed < float("inf"):
        raise InvalidArgument(
            f"link {text} is a number of bytes per second without a unit, and must be at least {LEAST_SPEED:g}: write "
            f"{text}m for megabits per second"
        )
    return speed


def parse_size(text: str) -> int:
    """Returns the bytes of a size. Raises InvalidArgument if the text is not a positive number of bytes."""
    match = _SIZE.fullmatch(text.strip().lower())
    size = 0
    if match is not None:
        size = round(float(match[1]) * (1000 if match[3] == "b" else 1024) ** _POWER[match[2] or ""])
    if size == 0:
        raise InvalidArgument(f"size {text!r} is not a positive number of bytes such as 64MiB, 512m or 2g")
    return size
