"""The option --dims of `esd simulate`: how many values the rows of each field have."""

from __future__ import annotations

from collections.abc import Sequence

from esd.services.domain.errors import InvalidArgument


def parse_dimensions(text: str, fields: Sequence[str], default: int) -> tuple[int, ...]:
    """Reads the dimension of every field's rows, [F].

    Args:
        text: one number for every field, or some as NAME=NUMBER.
        fields: names of the F fields.
        default: of the fields that are not named.

    Raises:
        InvalidArgument: a number that is none, a wrong number of them, an unknown or repeated name.
    """
    parts = [part.strip() for part in text.split(",")]
    if not any("=" in part for part in parts):
        if len(parts) != len(fields):
            raise InvalidArgument(
                f"--dims gives {len(parts)} numbers, the data has {len(fields)} fields: {', '.join(fields)}"
            )
        return tuple(_dimension(part) for part in parts)
    given: dict[str, int] = {}
    for part in parts:
        name, _, value = part.partition("=")
        if name not in fields:
            raise InvalidArgument(f"--dims names field {name!r}; the fields are {', '.join(fields)}")
        if name in given:
            raise InvalidArgument(f"--dims names field {name!r} twice")
        given[name] = _dimension(value)
    return tuple(given.get(name, default) for name in fields)


def _dimension(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidArgument(f"--dims: {text!r} is not a whole number") from None
