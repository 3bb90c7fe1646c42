"""The options that say where a run keeps its rows and checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from esd.cli.limits import within
from esd.ps_server.stores.places import as_place
from esd.run.options import TABLE
from esd.services.domain.ids import PARTITIONS
from esd.services.domain.jobs import RowLimitPolicy

_PANEL = "Table and checkpoints"

PLACE = "DIRECTORY|URL"


def checkpoint_place(text: str | Path) -> Path | str:
    """Reads where checkpoints are kept. Raises BadParameter for a file."""
    place = as_place(text)
    if isinstance(place, Path) and place.is_file():
        raise typer.BadParameter(f"Directory {str(place)!r} is a file.")
    return place


Store = Annotated[
    str,
    typer.Option(
        "--store",
        help="memory; valkey: a Valkey server that the run starts; redis://HOST:PORT/DB or redis+cluster://HOST:PORT, "
        "rediss for TLS: a Redis or Valkey that runs. A password is read from the file ESD_PS_STORE_PASSWORD_FILE.",
        rich_help_panel=_PANEL,
    ),
]
Shards = Annotated[
    int,
    typer.Option(
        "--shards", metavar="N", min=1, max=PARTITIONS, help="Parameter-server processes.", rich_help_panel=_PANEL
    ),
]
Table = Annotated[
    str | None,
    typer.Option(
        help="Name of the rows' table.",
        show_default=f"{TABLE}, and with --dispatcher a new one",
        rich_help_panel=_PANEL,
    ),
]
CheckpointEvery = Annotated[
    int,
    typer.Option(
        metavar="ITERATIONS",
        **within("checkpoint_every"),
        help="Iterations between checkpoints, to which a run that lost a process goes back; 0: see the next.",
        rich_help_panel=_PANEL,
    ),
]
MaxRows = Annotated[
    int,
    typer.Option(
        metavar="ROWS", **within("max_rows"), help="Rows that the table may have; 0: any.", rich_help_panel=_PANEL
    ),
]
AtMaxRows = Annotated[
    RowLimitPolicy,
    typer.Option(
        help="With --max-rows: refuse ends the run before the iteration that needs more rows; forget drops those "
        "trained longest ago, with their optimizer state.",
        rich_help_panel=_PANEL,
    ),
]
RowTtl = Annotated[
    int,
    typer.Option(
        metavar="N",
        **within("row_ttl"),
        help="Iterations without a training after which a row is forgotten, with its optimizer state; 0: none. A table "
        "of the --schema may have its own.",
        rich_help_panel=_PANEL,
    ),
]
AdmitAfter = Annotated[
    int,
    typer.Option(
        metavar="N",
        **within("admit_after"),
        help="An id is trained from the N-th iteration on that has it, and reads its initial row before; 1: at once. A "
        "table of the --schema may have its own.",
        rich_help_panel=_PANEL,
    ),
]
CheckpointSeconds = Annotated[
    float,
    typer.Option(
        metavar="SECONDS",
        **within("checkpoint_seconds"),
        help="Longest time between checkpoints, seconds; 0: any. Without both, a lost process ends the run.",
        rich_help_panel=_PANEL,
    ),
]
CheckpointBytes = Annotated[
    str,
    typer.Option(
        metavar="SIZE",
        help="Bytes of samples since the last checkpoint after which one is taken early, since the dispatcher and the "
        "sample log hold these samples; 0: any.",
        rich_help_panel=_PANEL,
    ),
]
CheckpointsKept = Annotated[
    int,
    typer.Option(
        metavar="N",
        **within("checkpoints_kept"),
        help="Checkpoints that esd checkpoint restore can go back to.",
        rich_help_panel=_PANEL,
    ),
]
CheckpointDir = Annotated[
    Any,  # Path, str or None: typer takes no union
    typer.Option(
        parser=checkpoint_place,
        metavar=PLACE,
        help="with --store memory: where checkpoints are kept, so that the parameter server may die, too: a directory, "
        "s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX; with --store valkey: the directory of its "
        "data, which otherwise ends with the run.",
        rich_help_panel=_PANEL,
    ),
]
