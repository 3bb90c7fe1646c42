"""How much time a decision has, and how large its exact part is: `--budget` and `--alpha`, as numbers or `auto`."""

from __future__ import annotations

from typing import Any

from esd.services.domain.errors import InvalidArgument

AUTO = "auto"


def parse_alpha(text: str) -> dict[str, Any]:
    """Reads `--alpha` as options of a job. Raises InvalidArgument unless it is a number or `auto`."""
    if text == AUTO:
        return {"alpha": 1.0, "auto_alpha": True}
    return {"alpha": _number("--alpha", text), "auto_alpha": False}


def parse_budget(text: str | None) -> dict[str, Any]:
    """Reads `--budget` as options of a job. Raises InvalidArgument unless it is a positive number or `auto`."""
    if text is None or text == AUTO:
        return {"budget_seconds": 0.0, "auto_budget": text == AUTO}
    milliseconds = _number("--budget", text)
    if milliseconds == 0:
        raise InvalidArgument("--budget 0 leaves no time: leave it out, and decisions take as long as they take")
    return {"budget_seconds": milliseconds / 1e3, "auto_budget": False}


def _number(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidArgument(f"{option} {text!r} is neither a number nor {AUTO}") from None
