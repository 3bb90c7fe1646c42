"""The options that say which model a run trains, and what they mean."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from esd.services.domain.errors import InvalidArgument
from esd.services.domain.losses import Loss

_PANEL = "What is trained"

Model = Annotated[
    str,
    typer.Option(
        help="wdl, dfm, dcn, dlrm, ncf, flen, mmoe, tbsm, or your own: package.module:Class.",
        rich_help_panel=_PANEL,
    ),
]
Hidden = Annotated[str, typer.Option(help="Widths of the model's hidden layers; empty: none.", rich_help_panel=_PANEL)]
LossOption = Annotated[
    Loss, typer.Option("--loss", help="Loss of the model; own: it has one of its own.", rich_help_panel=_PANEL)
]


def parse_hidden(text: str) -> tuple[int, ...]:
    """Reads the widths of hidden layers as they are written on the command line.

    Raises:
        InvalidArgument: they are no whole numbers.
    """
    try:
        return tuple(int(width) for width in text.split(",")) if text.strip() else ()
    except ValueError:
        raise InvalidArgument(f"--hidden {text!r} is not a list of whole numbers: 256,128") from None


def look_here() -> None:
    """Lets a model of one's own be found first in the folder in which the command is called.

    There the workers look, too, that a command starts.
    """
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
