"""The options that say which model a run trains."""

from __future__ import annotations

from typing import Annotated

import typer

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
