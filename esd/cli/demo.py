"""`esd demo` compares random dispatch with ours on real data, in a minute."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Annotated

import typer
from rich.console import Console

from esd.cli import options as opt
from esd.cli.report import Result, comparison
from esd.cli.train import run

DEMO = opt.RunOptions(
    data="flights",
    model="wdl",
    workers=4,
    links="200m,200m,20m,20m",
    dim=128,
    cache_ratio=0.08,
    batch=64,
    iterations=100,
)


def command(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")] = False,
) -> None:
    """Trains Wide & Deep on the New York flights of 2013 with 4 workers, two links ten times slower than the others."""
    console = Console()
    if not as_json:
        console.print(
            f"Wide & Deep on {DEMO.data}: {DEMO.iterations} iterations, {DEMO.workers} workers x {DEMO.batch} samples,"
            f" links {DEMO.links} bit/s, rows of {DEMO.dim} values; all services are processes of this machine."
        )
    results = {
        mechanism: run(replace(DEMO, mechanism=mechanism), store="memory", shards=1, out=None)
        for mechanism in ("random", DEMO.mechanism)
    }
    if as_json:
        print(json.dumps(results))
        return
    console.print()
    console.print(comparison(results))
    console.print()
    console.print(_verdict(results["random"], results[DEMO.mechanism]))


def _verdict(random: Result, own: Result) -> str:
    faster = own["iterations_per_second"] / random["iterations_per_second"]
    cheaper = random["cost_seconds"] / own["cost_seconds"]
    return (
        f"{DEMO.mechanism} against random dispatch: {faster:.2f} x the iterations per second,"
        f" {cheaper:.2f} x less transfer cost, the same model."
    )
