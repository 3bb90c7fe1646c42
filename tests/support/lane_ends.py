"""Both ends of lanes as processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.service_process import serving


@contextmanager
def lane_ends(targets: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The near and the far end of lanes to services, which commas separate; gives their ready lines."""
    with serving("lanes", "--to", targets) as far, serving("lanes", "--via", far["address"], "--lanes", 3) as near:
        yield near, far
