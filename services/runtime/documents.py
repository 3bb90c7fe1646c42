"""TOML files that people write: the reason why one cannot be read, and the nearest known name to a mistyped one."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from esd.services.domain.errors import InvalidArgument


def read_toml(path: Path, named: str) -> dict[str, Any]:
    """Reads a TOML file in UTF-8.

    Args:
        path: path of the file.
        named: its description in messages, such as `--config job.toml`.

    Raises:
        InvalidArgument: the file does not exist, cannot be read, or is not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidArgument(f"{named} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise InvalidArgument(f"{named} cannot be read: {error}") from None


def suggestion(name: str, known: Iterable[str]) -> str:
    """Returns the end of a message about an unknown name: a suggestion of the nearest known name, or nothing."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
