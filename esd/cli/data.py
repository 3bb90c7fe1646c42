"""`esd data`: looks at data of one's own."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer
from rich.table import Table

from esd.cli.console import Json
from esd.cli.report import print_json
from esd.cli.tables import print_table
from esd.data.opening import readers as known_readers
from esd.data.opening import table_reader
from esd.services.domain.errors import InvalidArgument

app = typer.Typer(no_args_is_help=True, help="Looks at data of your own, and lists the readers of data.")


@app.callback()
def _group() -> None:
    """Looks at data of your own, and lists the readers of data."""


@app.command()
def inspect(
    path: Annotated[str, typer.Argument(help="A file, a folder, or a pattern such as 'events/*.parquet'.")],
    rows: Annotated[int, typer.Option(min=1, help="Rows to look at.")] = 1_000_000,
    label: Annotated[
        str | None, typer.Option(help="Column of the label.", show_default="by its name, or always 0 or 1")
    ] = None,
) -> None:
    """Proposes a schema for Parquet, Arrow or CSV files: `esd data inspect events/ > events.toml`.

    `esd train --data events/ --schema events.toml` trains on them.
    """
    name = path.partition(":")[0]
    if name in known_readers() and not Path(path).exists():
        raise InvalidArgument(
            f"data {path!r} need no schema: the reader {name!r} knows their columns; esd train --data {quote(path)}"
        )
    print(table_reader().propose(path, rows, label).to_toml(), end="")


@app.command()
def readers(as_json: Json = False) -> None:
    """Lists the readers of `--data NAME` and `--data NAME:PATH`, with those that installed packages offer."""
    known = known_readers()
    if as_json:
        print_json(known)
        return
    table = Table("--data", "from", show_edge=False, pad_edge=False)
    for name, origin in known.items():
        table.add_row(name, origin)
    print_table(table)
