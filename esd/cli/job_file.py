"""`--config FILE`: a TOML file of options, so that a run can be kept, shared and repeated.

    data = "criteo:/data/train.txt"
    workers = 4
    links = ["500m", "500m", "50m", "50m"]
    lr = 0.01
    eviction-term = true

A key is an option without its dashes, `lr` for `--lr`. An option on the command line wins. Values of a file pass
the same checks as values on the command line.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from esd.services.domain.errors import InvalidArgument
from esd.services.runtime.documents import read_toml, suggestion


def _take_up(context: typer.Context, path: Path | None) -> Path | None:
    """Makes the file's values the defaults of the options that the command line leaves out."""
    if path is not None:
        context.default_map = _defaults(context, path)
    return path


Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        is_eager=True,  # before the options whose defaults it gives
        callback=_take_up,
        help="TOML file of options, such as workers = 8; what the command line says wins.",
    ),
]


def _defaults(context: typer.Context, path: Path) -> dict[str, str]:
    """Reads the file. Returns the text of each value by the name of its parameter.

    Raises:
        InvalidArgument: the file cannot be read, a key is no option, or a value is of a kind that no option has.
    """
    document = read_toml(path, f"--config {path}")
    parameters = {
        option.removeprefix("--"): parameter.name
        for parameter in context.command.params
        for option in parameter.opts
        if option not in ("--config", "--help")
    }
    defaults = {}
    for key, value in document.items():
        if key not in parameters:
            raise InvalidArgument(f"--config {path}: there is no option {key!r}{suggestion(key, parameters)}")
        defaults[parameters[key]] = _text(value, f"--config {path}: {key}")
    return defaults


def _text(value: Any, where: str) -> str:
    """Returns a value as the command line would have it, so that both are read and checked alike."""
    match value:
        case bool():
            return str(value).lower()
        case str() | int() | float():
            return str(value)
        case list() if value and all(isinstance(each, str | int | float) for each in value):
            return ",".join(map(str, value))
        case _:
            raise InvalidArgument(f"{where} is {value!r}, it must be a text, a number, true, false, or a list of them")
