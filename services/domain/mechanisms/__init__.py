"""The options of the dispatch mechanisms that have any: a class for each (docs/mechanisms.md)."""

from __future__ import annotations

from dataclasses import fields
from enum import Enum
from typing import Any

from esd.services.domain.errors import InvalidArgument
from esd.services.domain.mechanisms.esd import Criterion, EsdOptions, check_choice
from esd.services.domain.mechanisms.hash import HashOptions
from esd.services.domain.mechanisms.joint import MAX_HORIZON, JointOptions
from esd.services.domain.mechanisms.laia import LaiaOptions, LaiaReading
from esd.services.domain.mechanisms.options import MechanismOptions

__all__ = [
    "MAX_HORIZON",
    "OPTIONS",
    "Criterion",
    "EsdOptions",
    "HashOptions",
    "JointOptions",
    "LaiaOptions",
    "LaiaReading",
    "MechanismOptions",
    "check_choice",
    "check_options",
    "mechanism_text",
    "parse_mechanism",
]

OPTIONS: dict[str, type[MechanismOptions]] = {
    "esd": EsdOptions,
    "esd-priced": EsdOptions,
    "joint": JointOptions,
    "hash": HashOptions,
    "laia": LaiaOptions,
    "laia-adaptive": LaiaOptions,
    "laia-two-choices": LaiaOptions,
}


def check_options(mechanism: str, options: MechanismOptions | None) -> None:
    """Raises InvalidArgument unless these options are options of the mechanism, or None."""
    own = OPTIONS.get(mechanism)
    if options is not None and type(options) is not own:
        takes = "has none" if own is None else f"takes {own.__name__}"
        raise InvalidArgument(f"mechanism_options of a job is {options!r}, mechanism {mechanism} {takes}")


def parse_mechanism(text: str) -> tuple[str, MechanismOptions | None]:
    """Reads an entry of a list of mechanisms: `NAME`, or `NAME:VALUE` with a value of the mechanism's first option.

    Returns:
        The name, which need not be a mechanism's, and the options; None for the defaults.

    Raises:
        InvalidArgument: the mechanism has no options, or the value is not one of its first option.
    """
    name, colon, value = text.partition(":")
    if not colon:
        return name, None
    own = OPTIONS.get(name)
    if own is None:
        raise InvalidArgument(f"mechanism {text!r} has a value after its name, {name} has no options")
    option, default = _first_option(own)
    kind: type[Any] = type(default) if isinstance(default, float | Enum) else int
    try:
        return name, own(**{option: kind(value)})
    except ValueError:
        values = ", ".join(each.value for each in kind) if issubclass(kind, Enum) else f"of type {kind.__name__}"
        raise InvalidArgument(f"mechanism {text!r} has {value!r} as {option}, it must be {values}") from None


def mechanism_text(mechanism: str, options: MechanismOptions | None) -> str:
    """Returns a mechanism as a list of mechanisms has it: with the value of its first option unless it is the default.

    >>> mechanism_text("laia", LaiaOptions(LaiaReading.TEXT))
    'laia:text'
    """
    if options is None:
        return mechanism
    option, default = _first_option(type(options))
    value = getattr(options, option)
    return mechanism if value == default else f"{mechanism}:{value.value if isinstance(value, Enum) else value}"


def _first_option(options: type[MechanismOptions]) -> tuple[str, Any]:
    """Returns the name and the default of the first option."""
    first = fields(options)[0]
    return first.name, first.default
