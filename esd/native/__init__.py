"""Native kernels (C++17), one module per concern; sources in `native/`, numpy references in `tests/unit/native`.

The wheel for platforms that have none of their own lacks them (docs/releasing.md). Clients work without: code that they
import takes a module by `from esd.native import text`, which then stands for an absent one until it is used.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any


def is_missing(error: ImportError) -> str | None:
    """Returns the text of an error that was raised because a kernel is not installed; None for any other error."""
    if error.name is None or not error.name.startswith(f"{__name__}."):
        return None
    return (
        f"{error.name} is compiled code, which the installed wheel of esd-train has not: there is none for this "
        "platform and Python, where esd is a client only. To compile it, which takes a C++17 compiler: "
        "pip install --force-reinstall --no-deps --no-binary esd-train esd-train"
    )


class _Absent:
    """Stands for a module that is not installed."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        error = ModuleNotFoundError(name=self._name)
        error.args = (is_missing(error),)
        raise error


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    module = f"{__name__}.{name}"
    return _Absent(module) if find_spec(module) is None else import_module(module)
