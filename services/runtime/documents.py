"""TOML files that people write: the reason why one cannot be read, and the nearest known name to a mistyped one."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from esd.services.domain.errors import InvalidArgument

_MOST_BYTES = 1 << 20


def read_toml(path: Path, named: str) -> dict[str, Any]:
    """Reads a TOML file in UTF-8, of at most 1 MiB.

    Args:
        path: of the file.
        named: the name of the file in messages, such as `--config job.toml`.

    Raises:
        InvalidArgument: the file is absent, unreadable, larger, nested too deeply or no TOML.
    """
    try:
        with path.open("rb") as file:  # a device may have no end
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise InvalidArgument(f"{named} cannot be read: it has more than {_MOST_BYTES:,} bytes")
        return tomllib.loads(content.decode().replace("\r\n", "\n"))
    except OSError as error:
        raise InvalidArgument(f"{named} cannot be read: {error.strerror}") from None
    except RecursionError:
        raise InvalidArgument(f"{named} cannot be read: its values are nested too deeply") from None
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InvalidArgument(f"{named} cannot be read: line {line} is not UTF-8: convert the file (iconv)") from None
    except ValueError as error:
        raise InvalidArgument(f"{named} cannot be read: {error}") from None


def suggestion(name: str, known: Iterable[str]) -> str:
    """Returns the end of a message about an unknown name: a suggestion of the nearest known name, or nothing."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
