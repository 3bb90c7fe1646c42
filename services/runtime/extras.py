"""Packages that an extra of the distribution brings: an error that one is missing names it, and the command for it."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from esd.services.domain.errors import FailedPrecondition, NotFound

_DISTRIBUTION = "esd-train"
_TRAIN = "train"  # the extra with torch


def is_missing(user: str, package: str, extra: str) -> str:
    """Returns the text of an error: a package is not installed, its user, and the command that installs it.

    The command needs no index with this distribution, since pip finds it installed.
    """
    return f"{user} needs {package}, which is not installed: pip install '{_DISTRIBUTION}[{extra}]'"


def reader_module(module: str, user: str, package: str, extra: str) -> Any:
    """Imports a module that reads data by an optional package. Arguments as of `is_missing`.

    Raises:
        NotFound: the package is not installed.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise NotFound(is_missing(user, package, extra)) from error


def torch_is_missing(user: str) -> str:
    """Returns the text of an error: torch is not installed, its user, and the commands that install it."""
    cpu = "pip install torch --index-url https://download.pytorch.org/whl/cpu"
    return f"{is_missing(user, 'torch', _TRAIN)} (before it, for a machine without a GPU: {cpu})"


def require_torch(user: str) -> None:
    """Looks whether torch is installed, without importing it.

    Raises:
        FailedPrecondition: it is not.
    """
    if find_spec("torch") is None:
        raise FailedPrecondition(torch_is_missing(user))
