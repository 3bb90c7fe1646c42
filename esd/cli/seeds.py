"""`esd train --seeds N`: the same run with several seeds, and how much its figures depend on them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean, stdev
from typing import Annotated, Any

import typer
from rich.table import Table

from esd.cli.report import Result, print_json
from esd.cli.tables import print_table

SeedsOption = Annotated[
    int,
    typer.Option(
        "--seeds",
        min=1,
        help="Runs, one after the other, with --seed and those that follow it; mean and spread are printed.",
        rich_help_panel="How the model is judged",
    ),
]

# The figures that the seed decides; figures of held-out samples have the same names.
_FIGURES = ("loss", "auc", "normalised_entropy", "calibration")
_HELD_OUT = "held_out"


def over_seeds(first: int, count: int, run: Callable[[int], Result]) -> Result:
    """Runs once for each of the seeds `first` to `first + count - 1`.

    Returns:
        `runs`, the results in order, each with its `seed`; `mean` and `spread` of the figures of the model, the spread
        being the sample standard deviation. A figure that a run lacks is NaN in both.
    """
    runs = [run(seed) | {"seed": seed} for seed in range(first, first + count)]
    figures = {name: [each[name] for each in runs] for name in _FIGURES}
    if all(each[_HELD_OUT] is not None for each in runs):
        figures |= {f"{_HELD_OUT}.{name}": [each[_HELD_OUT][name] for each in runs] for name in _FIGURES}
    return {
        "runs": runs,
        "mean": {name: fmean(values) for name, values in figures.items()},
        "spread": {name: _spread(values) for name, values in figures.items()},
    }


def print_seeds(result: Result, *, as_json: bool) -> None:
    """Prints what `over_seeds` has returned on standard output."""
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


def _spread(values: Sequence[float]) -> float:
    if len(values) < 2 or any(map(math.isnan, values)):
        return math.nan
    return stdev(values)
