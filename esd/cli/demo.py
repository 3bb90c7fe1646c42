"""`esd demo` compares random dispatch with the paper's and with ours on real data, in a minute."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer
from rich.console import Console

from esd.cli.report import comparison, print_json
from esd.cli.shown_run import ShownRun
from esd.cli.stopping import run_until_stopped
from esd.cli.tables import print_figures
from esd.run.options import RunOptions
from esd.run.results import Result
from esd.run.train import train

DEMO = RunOptions(
    data="flights",
    model="wdl",
    hidden="16",
    workers=4,
    links="20m,20m,16m,16m",
    dim=64,
    cache_ratio=0.08,
    dense_sum="server",
    batch=64,
    iterations=150,
)
BETTER = ("esd", "joint")  # than random dispatch: the paper's and the default


def command(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")] = False,
) -> None:
    """Trains Wide & Deep on the New York flights of 2013 with 4 workers, each with one slow network card."""
    console = Console()
    if not as_json:
        console.print(
            f"Wide & Deep on {DEMO.data}: {DEMO.iterations} iterations, {DEMO.workers} workers x {DEMO.batch} samples,"
            f" links {DEMO.links} bit/s for all that each sends and receives, rows of {DEMO.dim} values, dense"
            f" gradients by {DEMO.dense_sum}; all services are processes of this machine."
        )
    results = {mechanism: _trained(replace(DEMO, mechanism=mechanism)) for mechanism in ("random", *BETTER)}
    if as_json:
        print_json(results)
        return
    console.print()
    print_figures(comparison(results))
    console.print()
    for mechanism in BETTER:
        console.print(_verdict(mechanism, results[mechanism], results["random"]))


def _trained(chosen: RunOptions) -> Result:
    with ShownRun(chosen.mechanism, None) as shown:
        return run_until_stopped(train(chosen, shown)).result()


def _verdict(mechanism: str, own: Result, random: Result) -> str:
    faster = own["iterations_per_second"] / random["iterations_per_second"]
    cheaper = random["cost_seconds"] / own["cost_seconds"]
    return (
        f"{mechanism} against random dispatch: {faster:.2f} x the iterations per second,"
        f" {cheaper:.2f} x less transfer cost, the same model."
    )
