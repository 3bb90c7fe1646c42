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
    return parse_toml(read_document(path, named), named)


def read_document(path: Path, named: str) -> bytes:
    """Reads a file of at most 1 MiB; see `read_toml`.

    Raises:
        InvalidArgument: the file is absent, unreadable or larger.
    """
    try:
        with path.open("rb") as file:  # a device may have no end
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise InvalidArgument(f"{named} cannot be read: {error.strerror}") from None
    except ValueError as error:  # the path has a byte 0
        raise InvalidArgument(f"{named} cannot be read: {error}") from None
    if len(content) > _MOST_BYTES:
        raise InvalidArgument(f"{named} cannot be read: it has more than {_MOST_BYTES:,} bytes")
    return content


def parse_toml(content: bytes, named: str) -> dict[str, Any]:
    """Parses the content of a TOML file; see `read_toml`.

    Raises:
        InvalidArgument: the content is not UTF-8, nested too deeply or no TOML.
    """
    try:
        return tomllib.loads(content.decode().replace("\r\n", "\n"))
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
