"""`esd submit` feeds one part of the stream of a job that `esd train --submitters` has opened."""

from __future__ import annotations

from typing import Annotated

import typer

from esd.cli import options as opt
from esd.cli.console import messages
from esd.cli.learning import EpochsOption, Shuffle
from esd.cli.stopping import run_until_stopped
from esd.run.events import Event
from esd.run.options import RunOptions
from esd.run.submitting import submit_part
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.runtime.security import Credentials


def command(
    data: opt.Data,
    part: Annotated[
        int, typer.Option(min=0, help="Number of the part. Part 0 is fed by the command that has opened the job.")
    ],
    dispatcher: Annotated[str, typer.Option(help="host:port of the dispatcher.")] = "127.0.0.1:50051",
    schema: opt.SchemaFile = None,
    site_values: opt.SiteValues = None,
    epochs: EpochsOption = 1,
    shuffle: Shuffle = 0,
    skip_bad: opt.SkipBad = 0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of --shuffle and of synthetic data.")] = 0,
) -> None:
    """Submits one part of the stream of a running job, as from another site. Repeated, it goes on."""
    options = RunOptions(
        data=data,
        schema=schema,
        site_values=site_values,
        epochs=epochs,
        shuffle=shuffle,
        skip_bad=skip_bad,
        seed=seed,
    )

    async def submitted() -> None:
        async with AsyncDispatcherClient(dispatcher, credentials=Credentials.load()) as client:
            job, samples = await submit_part(client, options, part, _show)
        messages.print(f"part {part} of job {job.name} has ended after {samples:,} samples", highlight=False)

    run_until_stopped(submitted())


def _show(event: Event) -> None:
    messages.print(str(event), markup=False, highlight=False, soft_wrap=True)
