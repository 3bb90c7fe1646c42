"""The model of a run: its hidden layers as text, and where a model of one's own is found."""

from __future__ import annotations

import sys
from pathlib import Path

from esd.services.domain.errors import InvalidArgument


def parse_hidden(text: str) -> tuple[int, ...]:
    """Reads the widths of hidden layers as they are written on the command line.

    Raises:
        InvalidArgument: they are no whole numbers.
    """
    try:
        return tuple(int(width) for width in text.split(",")) if text.strip() else ()
    except ValueError:
        raise InvalidArgument(f"--hidden {text!r} is not a list of whole numbers: 256,128") from None


def look_here() -> None:
    """Lets a model of one's own be found first in the folder in which the command is called.

    There the workers look, too, that a command starts.
    """
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
