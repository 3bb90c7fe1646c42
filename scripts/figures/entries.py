"""The list of figures, docs/figures.toml."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LIST = ROOT / "docs" / "figures.toml"


@dataclass(frozen=True, slots=True)
class Figure:
    """A passage of a page whose numbers come from a command.

    Attributes:
        page: its path below the repository.
        text: the passage, with `{expression:format}` in place of each number (scripts/figures/values.py) or word
            (format `s`); format `3sf` is three significant digits, and more before the point if need be. Any run of
            white space matches any other, and `…` matches any text. A passage without places for numbers is written by
            hand.
        command: prints JSON in its last line. `$each` in it stands for a value of `each`.
        each: the values of `$each`, by the name under which expressions find that run's values.
        rows: name of a list of objects in the JSON (`.`: the JSON is one), which are found by their `key` instead.
        key: the names of the fields that tell these objects apart. Objects with equal keys yield medians.
        value: the field of an object that an expression takes when it names the object alone.
        tolerance: how far a number may be from the page's, relative to the larger one. Such a figure depends on the
            machine or takes long, so it is measured only when asked for. None: the same digits, on every machine.
    """

    page: str
    text: str
    command: str
    each: dict[str, str] = field(default_factory=dict)
    rows: str = ""
    key: tuple[str, ...] = ()
    value: str = ""
    tolerance: float | None = None

    @property
    def exact(self) -> bool:
        """Whether it depends on nothing but the code, and is cheap enough to be checked again and again."""
        return self.tolerance is None

    @property
    def by_hand(self) -> bool:
        """Whether it has no number to fill in."""
        return "{" not in self.text

    @property
    def commands(self) -> dict[str, str]:
        """The commands by the names of their values; a single one has the empty name."""
        if not self.each:
            return {"": self.command}
        return {name: self.command.replace("$each", text) for name, text in self.each.items()}

    def __str__(self) -> str:
        return f"{self.page}: {' '.join(self.text.split())[:60]}"


def read_list() -> list[Figure]:
    """Reads the list. Raises ValueError for a key that is unknown or missing."""
    listed = tomllib.loads(LIST.read_text())
    return [_figure(entry, listed.get("commands", {})) for entry in listed["figure"]]


def _figure(entry: dict[str, Any], named: dict[str, str]) -> Figure:
    """Makes one of an entry, whose command may begin with the name of one of `commands`."""
    known = {each.name for each in fields(Figure)}
    if set(entry) - known or not {"page", "text", "command"} <= set(entry):
        raise ValueError(f"{LIST.name}: {sorted(entry)} are not keys of a figure, which has {sorted(known)}")
    name, *options = entry["command"].split(" ", 1)
    command = " ".join([named.get(name, name), *options])
    return Figure(**(entry | {"text": entry["text"].strip(), "command": command, "key": tuple(entry.get("key", ()))}))
