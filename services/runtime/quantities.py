"""Kinds of settings that are speeds or sizes, for the classes that pydantic checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BeforeValidator

from esd.services.domain.errors import InvalidArgument
from esd.services.domain.units import parse_link, parse_size, parse_speed


def _by(parse: Callable[[str], float]) -> BeforeValidator:
    def read(value: Any) -> float:
        try:
            return parse(str(value))
        except InvalidArgument as error:
            raise ValueError(str(error)) from None

    return BeforeValidator(read, json_schema_input_type=str | float)


Size = Annotated[int, _by(parse_size)]  # bytes, written `64MiB`
Speed = Annotated[float, _by(parse_speed)]  # bytes per second, written `500m`, in bits
Link = Annotated[float, _by(parse_link)]  # the same; a number without a unit is one of bytes per second
