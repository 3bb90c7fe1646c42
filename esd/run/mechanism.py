"""The options of a dispatch mechanism out of the options of a run, which has the options of every mechanism."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from enum import Enum
from typing import Any

from esd.run.budget import AUTO
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.mechanisms import OPTIONS, MechanismOptions


def choose_options(mechanism: str, values: Mapping[str, Any]) -> MechanismOptions | None:
    """Returns the options of a mechanism; None if it has none.

    Args:
        mechanism: name of the mechanism.
        values: values of options of any mechanisms, by name. Other mechanisms' options must have their defaults.

    Raises:
        InvalidArgument: an option of another mechanism has another value than its default, or a value is out of range.
    """
    own = OPTIONS.get(mechanism)
    names = _defaults(own) if own else {}
    for name, value in values.items():
        owners = {owner: _defaults(options) for owner, options in OPTIONS.items() if name in _defaults(options)}
        if name not in names and all(value != defaults[name] for defaults in owners.values()):
            lacks = f"{mechanism} has no such option (--mechanism)"
            raise InvalidArgument(f"{_as_given(name, value)} is for {' and '.join(owners)}, {lacks}")
    return own(**{name: value for name, value in values.items() if name in names}) if own else None


def _defaults(options: type[MechanismOptions]) -> dict[str, Any]:
    return {option.name: option.default for option in fields(options)}


def _as_given(name: str, value: Any) -> str:
    """Returns an option as the command line has it."""
    if name == "auto_alpha":
        return f"--alpha {AUTO}"
    option = f"--{name.replace('_', '-')}"
    return option if value is True else f"{option} {value.value if isinstance(value, Enum) else value}"
