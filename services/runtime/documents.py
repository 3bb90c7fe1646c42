"""TOML files that people write: why one cannot be read, and the nearest known name to a mistaken one."""

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
        path: of the file.
        named: what to call it in messages, such as `--config job.toml`.

    Raises:
        InvalidArgument: it is absent, unreadable or no TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidArgument(f"{named} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise InvalidArgument(f"{named} cannot be read: {error}") from None


def suggestion(name: str, known: Iterable[str]) -> str:
    """Returns the end of a message about a name that is not known: the known one that was meant, or nothing."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
