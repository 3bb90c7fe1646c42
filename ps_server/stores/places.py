"""The places of a memory store's checkpoints: a directory of this machine, or the URL of an object store."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Annotated, TypeAlias

from pydantic import BeforeValidator

from esd.services.domain.errors import FailedPrecondition, InvalidArgument

_SCHEMES = ("s3", "gs", "az")
_URL = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*)://([^/]*)(/.*)?")


def as_place(text: str | Path) -> Path | str:
    """Returns a URL as it is, and everything else as a path."""
    return text if isinstance(text, str) and "://" in text else Path(text)


Place: TypeAlias = Annotated[Path | str, BeforeValidator(as_place)]


def check_url(url: str) -> None:
    """Checks the URL of an object store without opening a connection.

    Raises:
        InvalidArgument: no object store has such a URL.
        FailedPrecondition: the library for object stores is not installed.
    """
    found = _URL.fullmatch(url)
    if found is None or found[1] not in _SCHEMES or not found[2]:
        raise InvalidArgument(
            f"checkpoint directory {url!r} is neither a path nor the URL of a bucket: s3://BUCKET/PREFIX, "
            "gs://BUCKET/PREFIX or az://CONTAINER/PREFIX"
        )
    if importlib.util.find_spec("obstore") is None:
        raise FailedPrecondition(f"checkpoints in {url} need a library: pip install 'esd-train[object-stores]'")
