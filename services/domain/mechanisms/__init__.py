"""The options of the dispatch mechanisms that have any: a class for each (docs/mechanisms.md)."""

from __future__ import annotations

from esd.services.domain.errors import InvalidArgument
from esd.services.domain.mechanisms.esd import Criterion, EsdOptions, check_choice
from esd.services.domain.mechanisms.hash import HashOptions
from esd.services.domain.mechanisms.joint import MAX_HORIZON, JointOptions
from esd.services.domain.mechanisms.options import MechanismOptions

__all__ = [
    "MAX_HORIZON",
    "OPTIONS",
    "Criterion",
    "EsdOptions",
    "HashOptions",
    "JointOptions",
    "MechanismOptions",
    "check_choice",
    "check_options",
]

OPTIONS: dict[str, type[MechanismOptions]] = {
    "esd": EsdOptions,
    "esd-priced": EsdOptions,
    "joint": JointOptions,
    "hash": HashOptions,
}


def check_options(mechanism: str, options: MechanismOptions | None) -> None:
    """Raises InvalidArgument unless these options are options of the mechanism, or None."""
    own = OPTIONS.get(mechanism)
    if options is not None and type(options) is not own:
        takes = "has none" if own is None else f"takes {own.__name__}"
        raise InvalidArgument(f"mechanism_options of a job is {options!r}, mechanism {mechanism} {takes}")
