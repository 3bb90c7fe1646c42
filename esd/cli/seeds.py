"""`--seeds N` of `esd train`: the option, and the table of several runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.table import Table

from esd.cli.report import print_json
from esd.cli.tables import print_table
from esd.run.results import Result

SeedsOption = Annotated[
    int,
    typer.Option(
        "--seeds",
        min=1,
        help="Runs, one after the other, with --seed and those that follow it; mean and spread are printed.",
        rich_help_panel="How the model is judged",
    ),
]


def print_seeds(result: Result, *, as_json: bool) -> None:
    """Prints a result of `over_seeds` on standard output."""
    if as_json:
        print_json(result)
        return
    runs: Sequence[Result] = result["runs"]
    table = Table(show_edge=False, pad_edge=False)
    for title in ("", "mean", "spread", *(f"seed {run['seed']}" for run in runs)):
        table.add_column(title, justify="right" if title else "left")
    for name, mean in result["mean"].items():
        values = (_figure(run, name) for run in runs)
        table.add_row(
            name.replace(".", ": ").replace("_", " "),
            *(f"{value:.4f}" for value in (mean, result["spread"][name], *values)),
        )
    print_table(table)


def _figure(run: Result, name: str) -> float:
    value: Any = run
    for part in name.split("."):
        value = value[part]
    return float(value)
