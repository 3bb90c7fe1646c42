"""The links of a run's workers, as `--links` lists them."""

from __future__ import annotations

from esd.services.domain.errors import InvalidArgument
from esd.services.domain.units import parse_speed


def parse_links(text: str, workers: int) -> tuple[float, ...]:
    """Returns the bytes per second of every worker's link, from a comma-separated list of one or `workers` speeds."""
    speeds = tuple(parse_speed(part) for part in text.split(","))
    if len(speeds) == 1:
        return speeds * workers
    if len(speeds) != workers:
        raise InvalidArgument(f"--links names {len(speeds)} links for {workers} workers")
    return speeds
