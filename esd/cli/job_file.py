"""`--config FILE`: a TOML file of options, so that a run can be kept, shared and repeated.

    data = "criteo:/data/train.txt"
    workers = 4
    links = ["500m", "500m", "50m", "50m"]
    lr = 0.01
    eviction-term = true

A key is an option without its dashes, `lr` for `--lr`. An option on the command line wins, and `--without lr` takes
the file's back. The file is checked once, whole, and each mistake is named with the file, its key and its value.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from esd.cli.job_model import check, taken_by
from esd.services.domain.errors import InvalidArgument
from esd.services.runtime.documents import read_toml


def _take_up(context: typer.Context, path: Path | None) -> Path | None:
    """Makes the file's values the defaults of the options that the command line leaves out."""
    if path is not None:
        if context.default_map:
            raise InvalidArgument("--plan and --config exclude each other: a plan has all options of its run")
        context.default_map = _defaults(context, read_toml(path, f"--config {path}"), f"--config {path}")
    return path


def _take_plan(context: typer.Context, path: Path | None) -> Path | None:
    """Makes the options of a plan's fastest command the defaults of those that the command line leaves out."""
    if path is not None:
        if context.default_map:
            raise InvalidArgument("--plan and --config exclude each other: a plan has all options of its run")
        context.default_map = _defaults(context, _planned(path), f"--plan {path}")
    return path


def _planned(path: Path) -> dict[str, Any]:
    """Reads the options of a plan.

    Raises:
        InvalidArgument: the file cannot be read, or is no answer of `esd plan --json`.
    """
    try:
        options = json.loads(path.read_text(encoding="utf-8"))["fastest"]["options"]
    except OSError as error:
        raise InvalidArgument(f"--plan {path}: {error.strerror}") from None
    except (ValueError, TypeError, KeyError):
        options = None
    if not isinstance(options, dict):
        raise InvalidArgument(f"--plan {path} is no answer of esd plan --json")
    return options


def _take_back(context: typer.Context, names: str | None) -> str | None:
    """Removes options from the defaults that the file gives, after it was read."""
    if names is None:
        return None
    given, parameters = context.default_map or {}, taken_by(context.command)
    for name in names.split(","):
        parameter = parameters.get(name.strip().removeprefix("--"))
        if parameter is None or parameter.name not in given:
            known = ", ".join(sorted(key for key, each in parameters.items() if each.name in given)) or "none"
            raise InvalidArgument(f"--without {name}: no file of --config gives this option; the given ones: {known}")
        context.default_map = given = {key: value for key, value in given.items() if key != parameter.name}
    return names


Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        is_eager=True,  # before the options whose defaults it gives
        callback=_take_up,
        help="TOML file of options, such as workers = 8; the command line wins.",
    ),
]
PlanFile = Annotated[
    Path | None,
    typer.Option(
        "--plan",
        is_eager=True,
        callback=_take_plan,
        help="Answer of esd plan --json, whose fastest command gives the options; the command line wins.",
    ),
]
Without = Annotated[
    str | None,
    typer.Option(
        callback=_take_back,  # after the eager --config, and before the options that take their values from its file
        help="Options of the --config file that do not count, with commas between them: evaluate,early-stop.",
    ),
]


def _defaults(context: typer.Context, document: dict[str, Any], file: str) -> dict[str, str]:
    """Returns the text of each value of a document of options by the name of its parameter.

    Raises:
        InvalidArgument: a key is no option, or a value is none that its option takes.
    """
    check(document, context.command, file)
    parameters = taken_by(context.command)
    return {parameters[key].name: _text(value) for key, value in document.items()}


def with_place(error: InvalidArgument, context: typer.Context, path: Path) -> InvalidArgument:
    """Returns an error that also names the options of the file that its message is about, by their name or value."""
    message, given = str(error), context.default_map or {}
    about = [
        key
        for key, parameter in taken_by(context.command).items()
        if parameter.name in given and _is_of_file(context, parameter.name)
        if f"--{key}" in message or _is_quoted(given[parameter.name], message)
    ]
    if not about or str(path) in message:
        return error
    return InvalidArgument(f"{message} ({', '.join(about)} of --config {path})")


def _is_of_file(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "DEFAULT_MAP"


def _is_quoted(value: str, message: str) -> bool:
    return any(len(part) > 2 and part.strip() in message for part in (value, *value.split(",")))


def _text(value: Any) -> str:
    """Returns a value that was checked as the command line would have it."""
    match value:
        case bool():
            return str(value).lower()
        case list():
            return ",".join(map(str, value))
        case _:
            return str(value)
