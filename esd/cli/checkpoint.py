"""`esd checkpoint list|verify|restore`: the checkpoints that a run has left in its store."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import SecretStr
from rich.table import Table

from esd.cli import options as opt
from esd.cli.console import messages
from esd.cli.report import print_json
from esd.cli.tables import print_table
from esd.dispatcher.service.state.manifest import Manifest
from esd.ps_server.service.offline import OfflineTable, offline_tables
from esd.ps_server.service.settings import ParameterServerSettings
from esd.services.domain.errors import EsdError, FailedPrecondition, NotFound
from esd.services.runtime.settings import load

_BROKEN = 1  # exit code of verify

app = typer.Typer(help="The checkpoints of a store (see docs/checkpoints.md).", no_args_is_help=True)

Store = Annotated[
    str | None,
    typer.Option("--store", help="redis://HOST:PORT/DB or redis+cluster://HOST:PORT.", show_default="ESD_PS_STORE"),
]
CheckpointDir = Annotated[
    Path | None,
    typer.Option(help="Directory of a run with --store memory.", show_default="ESD_PS_CHECKPOINT_DIR"),
]
TableName = Annotated[str | None, typer.Option("--table", help="Name of the table.", show_default="all of them")]
Iteration = Annotated[int, typer.Argument(min=0, help="Name of the checkpoint: the iteration that follows it.")]
OneIteration = Annotated[int | None, typer.Argument(min=0, help="The checkpoint to verify.", show_default="all")]


@app.command("list")
def show(
    store: Store = None, checkpoint_dir: CheckpointDir = None, table: TableName = None, as_json: opt.Json = False
) -> None:
    """Lists the checkpoints that can be gone back to."""
    with _jobs(store, checkpoint_dir, table) as jobs:
        found = [_describe(each, manifest) for each in jobs for manifest in each.manifests]
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
    as_json: opt.Json = False,
) -> None:
    """Reads checkpoints and says what is broken. Nothing may run on the store meanwhile."""
    results: list[dict[str, Any]] = []
    with _jobs(store, checkpoint_dir, table) as jobs:
        for each in jobs:
            with each.first.claimed():
                results += [
                    {"table": each.first.name, "iteration": manifest.iteration, "damage": _damage(each, manifest)}
                    for manifest in each.manifests
                    if iteration in (None, manifest.iteration)
                ]
    if not results:
        raise NotFound("the store holds no such checkpoint")
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
    as_json: opt.Json = False,
) -> None:
    """Puts the store back to a checkpoint, from which the next run goes on; later checkpoints are dropped.

    Refused while a parameter server runs on the store, and if the checkpoint is damaged.
    """
    with _jobs(store, checkpoint_dir, table) as jobs:
        chosen = [each for each in jobs if iteration in (manifest.iteration for manifest in each.manifests)]
        if len(chosen) != 1:
            names = ", ".join(each.first.name for each in chosen)
            raise NotFound(
                f"tables {names} have a checkpoint {iteration}: say which with --table"
                if chosen
                else f"there is no checkpoint {iteration}; esd checkpoint list names those that are there"
            )
        (found,) = chosen
        with found.first.claimed():
            manifest = next(each for each in found.manifests if each.iteration == iteration)
            damage = _damage(found, manifest)
            if damage:
                raise FailedPrecondition(
                    f"checkpoint {iteration} of table {found.first.name} is damaged: {'; '.join(damage)}"
                )
            rows = sum(each.restore(iteration) for each in found.tables_of(manifest))  # the first one first
    if as_json:
        print_json({"table": found.first.name, "iteration": iteration, "rows_put_back": rows})
    else:
        messages.print(f"table {found.first.name} is back at checkpoint {iteration}", highlight=False)


@dataclass(frozen=True, slots=True)
class _Job:
    """The tables that one job trains; the first one keeps the descriptions of checkpoints for all.

    Attributes:
        first: the first table of the job.
        stored: all tables of the store, by name.
    """

    first: OfflineTable
    stored: Mapping[str, OfflineTable]

    @property
    def manifests(self) -> list[Manifest]:
        """The checkpoints that can be gone back to."""
        return [Manifest.decode(each.manifest) for each in self.first.checkpoints]

    def tables_of(self, manifest: Manifest) -> list[OfflineTable]:
        """Returns the tables of a checkpoint, the first one first. Raises FailedPrecondition when one is missing."""
        names = [table["name"] for table in manifest.job["tables"]]
        if missing := [name for name in names if name not in self.stored]:
            raise FailedPrecondition(
                f"checkpoint {manifest.iteration} of table {self.first.name} is of tables that the store has not: "
                f"{', '.join(missing)}"
            )
        return [self.stored[name] for name in names]


@contextmanager
def _jobs(store: str | None, checkpoint_dir: Path | None, table: str | None) -> Iterator[list[_Job]]:
    settings = load(ParameterServerSettings)
    if checkpoint_dir is not None:
        settings = settings.model_copy(update={"store": SecretStr("memory"), "checkpoint_dir": checkpoint_dir})
    if store is not None:
        settings = settings.model_copy(update={"store": SecretStr(store), "checkpoint_dir": checkpoint_dir})
    with offline_tables(settings) as tables:
        stored = {each.name: each for each in tables}
        found = [_Job(each, stored) for each in tables if table in (None, each.name) and _has_manifests(each)]
        if not found:
            raise NotFound("the store holds no checkpoints" + (f" of table {table}" if table else ""))
        yield found


def _has_manifests(table: OfflineTable) -> bool:
    """Tells whether this is a job's first table: the others have checkpoints without a manifest."""
    return any(each.manifest for each in table.checkpoints)


def _job_in_words(checkpoint: dict[str, Any]) -> str:
    job = checkpoint["job"]
    workers = "1 worker" if job["workers"] == 1 else f"{job['workers']} workers"
    return f"table {checkpoint['table']}: {job['name']}, {job['model']['name']}, {job['mechanism']}, {workers}"


def _describe(job: _Job, manifest: Manifest) -> dict[str, Any]:
    return {
        "table": job.first.name,
        "iteration": manifest.iteration,
        "time": datetime.fromtimestamp(manifest.time, UTC).isoformat(timespec="seconds"),
        "job": manifest.job,
        "samples": manifest.samples,
        "rows": sum(table.rows(manifest.iteration) for table in job.tables_of(manifest)),
        "rows_changed": manifest.changed,
        "bytes": manifest.size,
        "cuts": list(manifest.cuts),
    }


def _damage(job: _Job, manifest: Manifest) -> list[str]:
    """Returns the defects of a checkpoint, a sentence for each."""
    damage = []
    for name in manifest.checksums or {}:
        data = job.first.part(manifest.iteration, name)
        if data is None:
            damage.append(f"part {name!r} is missing")
            continue
        try:
            manifest.check_part(name, data)
        except EsdError:
            damage.append(f"part {name!r} is damaged: its checksum differs")
    try:
        tables = job.tables_of(manifest)
    except FailedPrecondition as error:
        return [*damage, str(error)]
    several = len(tables) > 1
    return damage + [
        f"table {table.name}: {each}" if several else each
        for table in tables
        for each in table.damaged_rows(manifest.iteration)
    ]
