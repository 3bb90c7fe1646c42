"""A passage on a page: which numbers it shows, and the page with others."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

_PLACE = re.compile(r"\{([^{}:]+):([^{}]*)\}")
_ANYTHING = "…"
_NUMBER, _WORD = r"([-+]?\d[\d,]*(?:\.\d+)?%?)", r"([\w-]+)"


@dataclass(frozen=True, slots=True)
class Place:
    """A number or word on a page: its expression, its format, its text, and its span on the page."""

    expression: str
    form: str
    shown: str
    start: int
    end: int

    def written(self, value: object) -> str:
        """Writes a value as it is written here: as Python formats it, or with three significant digits (`3sf`)."""
        if self.form == "3sf":
            return _with_three_digits(float(value))  # type: ignore[arg-type]
        return format(value, "" if self.form == "s" else self.form)

    def shows(self, value: object, tolerance: float | None) -> bool:
        """Returns whether the page shows this value; with a tolerance, up to that share of the larger one."""
        if self.written(value) == self.shown or tolerance is None or not isinstance(value, int | float):
            return self.written(value) == self.shown
        shown = float(self.shown.replace(",", "").rstrip("%")) / (100 if self.shown.endswith("%") else 1)
        return abs(shown - value) <= tolerance * max(abs(shown), abs(value))


def places(text: str, page: str) -> list[Place]:
    """Finds the passage on the page.

    Raises:
        ValueError: it is not there, or there more than once.
    """
    found = _find(text, page)
    return [
        Place(place[1], place[2], found[group], *found.span(group))
        for group, place in enumerate(_PLACE.finditer(text), start=1)
    ]


def span(text: str, page: str) -> tuple[int, int]:
    """Finds the passage on the page. Returns where it begins and ends. Raises as `places` does."""
    return _find(text, page).span()


def rewritten(page: str, changes: Sequence[tuple[Place, str]]) -> str:
    """Returns the page with other numbers; in columns that are lined up with blanks, they end where the others did."""
    for place, text in sorted(changes, key=lambda change: -change[0].start):
        before, after = page[: place.start], page[place.end :]
        blanks = len(before) - len(before.rstrip(" "))
        if blanks > 1:
            width = blanks + place.end - place.start
            page = before.rstrip(" ") + " " + text.rjust(width - 1) + after
        else:
            page = before + text + after
    return page


def _with_three_digits(value: float) -> str:
    """Writes 1.23, 12.3, 123 and 1234."""
    rounded = float(f"{value:.3g}")
    decimals = 2 - math.floor(math.log10(abs(rounded))) if rounded else 2
    return f"{value:.{max(0, decimals)}f}"


def _find(text: str, page: str) -> re.Match[str]:
    wanted, at = "", 0
    for place in _PLACE.finditer(text):
        wanted += _literal(text[at : place.start()]) + (_WORD if place[2] == "s" else _NUMBER)
        at = place.end()
    wanted += _literal(text[at:])
    found = list(re.finditer(wanted, page))
    if len(found) != 1:
        raise ValueError(f"is there {len(found)} times, it must be there once")
    return found[0]


def _literal(text: str) -> str:
    """Returns the expression for a literal text."""
    return r"[\s\S]*?".join(r"\s+".join(map(re.escape, re.split(r"\s+", part))) for part in text.split(_ANYTHING))
