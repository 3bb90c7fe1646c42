"""`esd train` starts all services as local processes, trains and reports; or trains on services that run already."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import typer

from esd.cli import options as opt
from esd.cli.console import Json
from esd.cli.job_file import PlanFile
from esd.cli.learning import ContinueFrom, ContinueStream
from esd.cli.options import takes_run_options
from esd.cli.report import print_result
from esd.cli.seeds import SeedsOption, print_seeds
from esd.cli.shown_run import ShownRun
from esd.cli.stopping import run_until_stopped
from esd.cli.storage import CheckpointDir, Shards, Store, Table
from esd.dispatcher.service.settings import split_mechanisms
from esd.run import valkey
from esd.run.options import TABLE, RunOptions
from esd.run.results import Result
from esd.run.seeds import over_seeds
from esd.run.train import train, train_attached
from esd.services.domain.errors import InvalidArgument
from esd.services.runtime.security import Credentials

# Options that were decided where the services were started.
_OF_THE_SERVICES = (
    "links",
    "lan",
    "cache_ratio",
    "cache_rows",
    "store",
    "shards",
    "checkpoint_dir",
    "decision_log",
    "shadows",
    "device",
)


@takes_run_options
def command(
    chosen: RunOptions,
    context: typer.Context,
    store: Store = "memory",
    shards: Shards = 1,
    checkpoint_dir: CheckpointDir = None,
    decision_log: opt.DecisionLog = None,
    shadows: opt.Shadows = None,
    device: opt.Device = None,
    dispatcher: opt.Dispatcher = None,
    parameter_servers: opt.ParameterServers = None,
    table: Table = None,
    continue_from: ContinueFrom = None,
    continue_stream: ContinueStream = False,
    plan: PlanFile = None,  # noqa: ARG001 - gives the defaults of the other options
    seeds: SeedsOption = 1,
    as_json: Json = False,
    out: opt.Out = None,
    graphs: opt.Graphs = None,
) -> None:
    """Trains a model: all services as processes of this machine, no Docker, Redis or GPU needed.

    With --dispatcher, on services that run already.
    """
    if table is not None and continue_from is not None:
        raise InvalidArgument("--continue-from names the table that is trained: leave out --table")
    if continue_stream and continue_from is None:
        raise InvalidArgument("--continue-stream goes on where an earlier run ended: give --continue-from TABLE")
    if (dispatcher is None) != (parameter_servers is None):
        raise InvalidArgument("--dispatcher and --parameter-servers go together")
    if seeds > 1 and (continue_from is not None or decision_log is not None):
        raise InvalidArgument("--seeds makes several models: leave out --continue-from and --decision-log")
    if dispatcher is not None:
        _check_options(context)

    def train_once(chosen: RunOptions, table: str | None, out: Path | None) -> Result:
        if dispatcher is not None and parameter_servers is not None:
            return _train_attached(
                chosen,
                dispatcher,
                parameter_servers,
                table,
                continue_from,
                out,
                graphs,
                continue_stream=continue_stream,
            )
        kept = store not in ("memory", valkey.STORE) or checkpoint_dir is not None
        resumed_by = (lambda _: "the same command") if kept else None
        with ShownRun(chosen.mechanism, resumed_by) as shown:
            work = train(
                chosen,
                shown,
                store=store,
                shards=shards,
                out=out,
                table=table,
                checkpoint_dir=checkpoint_dir,
                decision_log=decision_log,
                shadows=None if shadows is None else split_mechanisms(shadows),
                device=device,
                continue_from=continue_from,
                continue_stream=continue_stream,
                graphs=graphs,
            )
            return run_until_stopped(work).result()

    def with_seed(seed: int) -> Result:
        """Trains a table of its own, in a directory of its own."""
        name = f"{TABLE if table is None else table}-seed-{seed}" if dispatcher is None or table is not None else None
        return train_once(replace(chosen, seed=seed), name, out and out / f"seed-{seed}")

    if seeds > 1:
        print_seeds(over_seeds(chosen.seed, seeds, with_seed), as_json=as_json)
    else:
        print_result(chosen.mechanism, train_once(chosen, table, out), as_json=as_json)


def _train_attached(
    chosen: RunOptions,
    dispatcher: str,
    parameter_servers: str,
    table: str | None,
    continue_from: str | None,
    out: Path | None,
    graphs: bool | None,
    *,
    continue_stream: bool,
) -> Result:
    named = table is not None or continue_from is not None

    def resumed_by(drawn: str) -> str:
        return "the same command" if named else f"the same command with --table {drawn}"

    with ShownRun(chosen.mechanism, resumed_by) as shown:
        work = train_attached(
            chosen,
            shown,
            dispatcher=dispatcher,
            parameter_servers=parameter_servers,
            table=table,
            continue_from=continue_from,
            continue_stream=continue_stream,
            out=out,
            graphs=graphs,
            credentials=Credentials.load(),
        )
        return run_until_stopped(work).result()


def _check_options(context: typer.Context) -> None:
    """Refuses options that running services have decided already.

    Raises:
        InvalidArgument: such an option stands on the command line or in the file of `--config`.
    """
    for name in _OF_THE_SERVICES:
        source = context.get_parameter_source(name)
        if source is not None and source.name in ("COMMANDLINE", "DEFAULT_MAP"):
            option = name.replace("_", "-")
            raise InvalidArgument(f"--{option} is decided where the services were started: leave it out")
