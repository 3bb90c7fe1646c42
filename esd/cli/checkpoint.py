"""`esd checkpoint list|verify|restore`: the checkpoints that a run has left in its store."""

from __future__ import annotations

import sys
from itertools import groupby
from typing import Annotated, Any

import typer
from rich.table import Table

from esd.cli.console import Json, messages
from esd.cli.report import print_json
from esd.cli.storage import PLACE
from esd.cli.tables import print_table
from esd.ps_server.stores.places import as_place
from esd.run.checkpoints import job_with, stored_jobs
from esd.run.checkpoints import verify as verify_all

_BROKEN = 1  # exit code of verify

app = typer.Typer(help="Lists, verifies and restores the checkpoints of a store.", no_args_is_help=True)

Store = Annotated[
    str | None,
    typer.Option(
        "--store", help="redis://HOST:PORT/DB, redis+cluster://HOST:PORT, or valkey.", show_default="ESD_PS_STORE"
    ),
]
CheckpointDir = Annotated[
    Any,  # Path, str or None: typer takes no union
    typer.Option(
        parser=as_place,
        metavar=PLACE,
        help="--checkpoint-dir of a run with --store memory or valkey.",
        show_default="ESD_PS_CHECKPOINT_DIR",
    ),
]
TableName = Annotated[str | None, typer.Option("--table", help="Name of the table.", show_default="all of them")]
Iteration = Annotated[int, typer.Argument(min=0, help="Name of the checkpoint: the iteration that follows it.")]
OneIteration = Annotated[int | None, typer.Argument(min=0, help="The checkpoint to verify.", show_default="all")]


@app.command("list")
def show(
    store: Store = None, checkpoint_dir: CheckpointDir = None, table: TableName = None, as_json: Json = False
) -> None:
    """Lists the checkpoints that can be gone back to."""
    with stored_jobs(store, checkpoint_dir, table) as jobs:
        found = [each.describe(manifest) for each in jobs for manifest in each.manifests]
    if as_json:
        print_json({"checkpoints": found})
        return
    for job, checkpoints in groupby(found, _job_in_words):
        shown = Table(title=job, title_justify="left", show_edge=False, pad_edge=False)
        for header in ("iteration", "time, UTC", "samples", "rows", "rows\nchanged", "MB"):
            shown.add_column(header, justify="right")
        for each in checkpoints:
            shown.add_row(
                str(each["iteration"]),
                each["time"].replace("T", " ").removesuffix("+00:00"),
                *(f"{each[name]:,}" for name in ("samples", "rows", "rows_changed")),
                f"{each['bytes'] / 1e6:,.1f}",
            )
        print_table(shown)


@app.command()
def verify(
    iteration: OneIteration = None,
    store: Store = None,
    checkpoint_dir: CheckpointDir = None,
    table: TableName = None,
    as_json: Json = False,
) -> None:
    """Reads checkpoints and names the damaged ones. Nothing may run on the store meanwhile."""
    with stored_jobs(store, checkpoint_dir, table) as jobs:
        results = verify_all(jobs, iteration)
    if as_json:
        print_json({"checkpoints": results})
    else:
        for result in results:
            verdict = "; ".join(result["damage"]) or "whole"
            print(f"table {result['table']}, checkpoint {result['iteration']}: {verdict}")
    if any(result["damage"] for result in results):
        sys.exit(_BROKEN)


@app.command()
def restore(
    iteration: Iteration,
    store: Store = None,
    checkpoint_dir: CheckpointDir = None,
    table: TableName = None,
    as_json: Json = False,
) -> None:
    """Puts the store back to a checkpoint, from which the next run goes on; later checkpoints are dropped.

    Refused while a parameter server runs on the store, and if the checkpoint is damaged.
    """
    with stored_jobs(store, checkpoint_dir, table) as jobs:
        found = job_with(jobs, iteration)
        rows = found.restore(iteration)
    if as_json:
        print_json({"table": found.first.name, "iteration": iteration, "rows_put_back": rows})
    else:
        messages.print(f"table {found.first.name} is back at checkpoint {iteration}", highlight=False)


def _job_in_words(checkpoint: dict[str, Any]) -> str:
    job = checkpoint["job"]
    workers = "1 worker" if job["workers"] == 1 else f"{job['workers']} workers"
    return f"table {checkpoint['table']}: {job['name']}, {job['model']['name']}, {job['mechanism']}, {workers}"
