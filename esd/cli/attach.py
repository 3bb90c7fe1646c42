"""Talks to services that run already, such as those of a compose file: nothing is started or stopped."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import typer

from esd.cli.driver import going_on, progress_bar, run_until_stopped, train_to_the_end, way_back_told
from esd.cli.report import Result, messages, report_reading
from esd.run.options import RunOptions
from esd.run.stream import TrainingStream, held_out_samples, training_stream
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.jobs import JobSpec
from esd.services.domain.state import JobState
from esd.services.runtime.security import Credentials
from esd.services.runtime.settings import split_address

# Options that were decided where the services were started.
_OF_THE_SERVICES = ("links", "cache_ratio", "cache_rows", "store", "shards", "checkpoint_dir", "decision_log")


def run_attached(
    chosen: RunOptions,
    *,
    dispatcher: str,
    parameter_servers: str,
    table: str | None,
    out: Path | None,
    continue_from: str | None = None,
) -> Result:
    """Trains once on running services and returns the result.

    Args:
        chosen: what to train; links and caches are those that the workers bring.
        dispatcher: `host:port`, reached from here.
        parameter_servers: `host:port` of every shard, in shard order and separated by commas, as the workers reach
            them; from here they are reached to fetch the model.
        table: where the rows go; None takes a new one, since a table that was trained does not start anew.
        out: directory for the model.
        continue_from: the table of an earlier run, whose model is trained on.
    """
    _check_address("--dispatcher", dispatcher)
    stream = training_stream(chosen)
    held_out_data = held_out_samples(chosen, stream)
    asked = _job(chosen, stream, parameter_servers, table if continue_from is None else continue_from)
    if out is not None:  # a model that has nowhere to go is better not trained
        out.mkdir(parents=True, exist_ok=True)
    messages.print(f"table {asked.table.name}", highlight=False)

    shown = Credentials.load()

    async def train(seen: Callable[[JobState], None]) -> Result:
        job = asked if continue_from is None else await going_on(asked, shown)
        async with AsyncDispatcherClient(dispatcher, credentials=shown) as client:
            with progress_bar(chosen.mechanism, job.first_iteration, stream.iterations) as bar:

                def progress(state: JobState) -> None:
                    bar(state)
                    seen(state)

                return await train_to_the_end(client, chosen, job, stream, progress, held_out_data, out, shown)

    again = (
        "the same command"
        if table is not None or continue_from is not None
        else f"the same command with --table {asked.table.name}"
    )
    with way_back_told(again) as seen:
        result = run_until_stopped(train(seen))
    report_reading(stream.dataset)
    return result


def check_options(context: typer.Context) -> None:
    """Refuses options that running services have decided already.

    Raises:
        InvalidArgument: one of them stands on the command line or in the file of `--config`.
    """
    for name in _OF_THE_SERVICES:
        source = context.get_parameter_source(name)
        if source is not None and source.name in ("COMMANDLINE", "DEFAULT_MAP"):
            option = name.replace("_", "-")
            raise InvalidArgument(f"--{option} is decided where the services were started: leave it out")


def _check_address(option: str, address: str) -> None:
    try:
        split_address(address)
    except ValueError as error:
        raise InvalidArgument(f"{option}: {error}") from None


def _job(chosen: RunOptions, stream: TrainingStream, parameter_servers: str, table: str | None) -> JobSpec:
    dataset = stream.dataset
    addresses = tuple(address.strip() for address in parameter_servers.split(","))
    for address in addresses:
        _check_address("--parameter-servers", address)
    return chosen.job(
        features=dataset.features,
        labels=dataset.labels,
        dense_features=len(dataset.dense_features),
        parameter_servers=addresses,
        stream=dataset.fingerprint,
        table=f"{chosen.data_name}-{uuid.uuid4().hex[:8]}" if table is None else table,
        iterations=stream.iterations,
    )
