"""The limits of numbers on the command line: the limits of RunOptions."""

from __future__ import annotations

from typing import Any

from esd.run.options import LIMITS


def within(field: str) -> dict[str, Any]:
    """Returns the least and the most of a field, as arguments of `typer.Option`."""
    least, most = LIMITS[field]
    return {"min": least, "max": most}
