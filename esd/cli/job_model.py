"""The options that a command's `--config` takes, as a class of pydantic's: it checks the file, and describes it."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, Strict, ValidationError, create_model
from pydantic_core import PydanticCustomError

from esd.services.domain.errors import InvalidArgument
from esd.services.runtime.mistakes import mistakes

_Scalar = str | int | float


def taken_by(command: Any) -> dict[str, Any]:
    """Returns the parameters of a command that a file may give, by their name without dashes."""
    return {
        option.removeprefix("--"): parameter
        for parameter in command.params
        for option in parameter.opts
        if option not in ("--config", "--plan", "--without", "--help")
    }


def job_model(command: Any) -> type[BaseModel]:
    """Returns the class whose fields are the options of a command, of typer's, that its `--config` takes."""
    annotations = command.callback.__annotations__
    fields: dict[str, Any] = {}
    for key, parameter in taken_by(command).items():
        kind, option = get_args(annotations[parameter.name])
        limits = {"ge": option.min, "le": option.max} if option.min is not None or option.max is not None else {}
        described: Any = Annotated[_in_file(kind), Field(description=option.help, **limits)]
        fields[f"option_{parameter.name}"] = (described, Field(parameter.default, alias=key))
    return create_model(f"esd {command.name}", __config__=ConfigDict(extra="forbid"), **fields)


def check(document: dict[str, Any], command: Any, file: str) -> None:
    """Checks a file of options once, whole.

    Raises:
        InvalidArgument: a key is no option of the command, or a value is none that its option takes; the message names
            the file, and every such key with its value.
    """
    known = taken_by(command)
    try:
        job_model(command).model_validate(document, by_alias=True, by_name=False)
    except ValidationError as error:
        raise InvalidArgument(f"{file}: " + "; ".join(mistakes(error, document, lambda _: known))) from None


def _in_file(kind: Any) -> Any:
    """Returns the kind of a value in the file: a text may be written as a number or a list, too."""
    (present,) = [each for each in get_args(kind) or (kind,) if each is not type(None)]
    if present is str:
        return _Text
    if issubclass(present, Enum):
        return present
    return Annotated[str if present in (Path, Any) else present, Strict()]  # Any: of an option with a parser of its own


def _text(value: Any) -> Any:
    parts = value if isinstance(value, list) else [value]
    if not parts or any(isinstance(each, bool) or not isinstance(each, _Scalar) for each in parts):
        raise PydanticCustomError("text", "it must be a text, a number, or a list of them")
    return value


_Text = Annotated[Any, PlainValidator(_text, json_schema_input_type=_Scalar | list[_Scalar])]
