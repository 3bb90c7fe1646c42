"""`esd data`: looks at data of one's own, and writes the parts that stay at their sites."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer
from rich.table import Table

from esd.cli.console import Json, messages
from esd.cli.report import print_json
from esd.cli.tables import print_table
from esd.data.opening import readers as known_readers
from esd.data.opening import table_reader
from esd.data.site_values import write_site_values
from esd.run.options import RunOptions
from esd.run.stream import READ_SAMPLES
from esd.services.domain.errors import InvalidArgument
from esd.services.runtime.site_values import folder_of_site

_HELP = "Looks at data of your own, lists the readers of data, and writes values that stay at sites."
app = typer.Typer(no_args_is_help=True, help=_HELP)


@app.callback()
def _group() -> None:
    """Looks at data of your own, lists the readers of data, and writes values that stay at sites."""


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


@app.command()
def site_values(
    data: Annotated[str, typer.Argument(help="The samples, as esd train --data has them.")],
    sites: Annotated[str, typer.Option(help="Names of the sites: north,south.")],
    out: Annotated[Path, typer.Option(help="New folder, which gets a folder for each site.")],
    schema: Annotated[
        Path | None, typer.Option(help="TOML file that says what the columns are, with a column of sites.")
    ] = None,
) -> None:
    """Writes labels and dense features, which then stay at their sites: `esd train --site-values OUT`.

    Each folder in OUT goes to the machines of its site, whose workers find it by ESD_WORKER_SITE_VALUES. The submitter
    needs the folders of the samples that it submits.
    """
    chosen = RunOptions(data=data, schema=schema, sites=sites)
    written = write_site_values(chosen.open_all(data, READ_SAMPLES), chosen.worker_sites(), out)
    for site, samples in written.items():
        messages.print(f"{folder_of_site(out, site)}: {samples} samples of site {site!r}", highlight=False)
