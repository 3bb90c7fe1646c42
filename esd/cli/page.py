"""`esd page` opens the page of a run that has ended, and compares runs."""

from __future__ import annotations

import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from esd.run.comparison import page_of, write_comparison
from esd.services.domain.errors import InvalidArgument


def command(
    folders: Annotated[list[Path], typer.Argument(help="Folders of runs, as `esd train --out DIR` writes them.")],
    out: Annotated[Path, typer.Option(dir_okay=False, help="File for the page that compares several runs.")] = Path(
        "comparison.html"
    ),
    opens: Annotated[
        bool | None,
        typer.Option("--open/--no-open", help="Show the page in the browser. Default: if the output is a terminal."),
    ] = None,
) -> None:
    """Shows the page of a run that has ended; of several runs, a page that compares them."""
    if len(folders) == 1:
        page = page_of(folders[0])
    else:
        if out.suffix != ".html":
            raise InvalidArgument(f"--out {out} must end in .html, by which browsers know a page")
        write_comparison(folders, out)
        page = out
    print(page)
    if sys.stdout.isatty() if opens is None else opens:
        webbrowser.open(page.absolute().as_uri())
