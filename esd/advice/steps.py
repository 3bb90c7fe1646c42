"""The steps of an advice, for a listener: each takes seconds to minutes, and is reported in a line before it begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

StepListener: TypeAlias = Callable[[str], object]


def ignore(_: str) -> None:
    """Listens to nothing."""
