"""`esd plan` recommends the sizes of a run, and reports its rows, the needs of its services and the limits it meets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from esd.advice.advise import advise
from esd.advice.needs import Services
from esd.cli import options as opt
from esd.cli.console import Json, messages
from esd.cli.options import takes_run_options
from esd.cli.plan_report import check_plot, print_advice, save_plot
from esd.cli.report import print_json
from esd.cli.storage import CheckpointDir, Shards, Store
from esd.dispatcher.service.settings import split_mechanisms
from esd.run.options import RunOptions

Memory = Annotated[
    str | None,
    typer.Option(
        help="Memory of each worker for everything, 2g, 512m: its process, cache and samples.",
        show_default="half of what this machine has free",
    ),
]
ProfiledSamples = Annotated[int, typer.Option("--samples", min=1000, help="First samples of the data to profile.")]
BatchLimits = Annotated[
    str, typer.Option(help="Without --batch: least and most samples per worker and iteration to choose from.")
]
Count = Annotated[
    str | None,
    typer.Option(
        metavar="all|N",
        help="Samples whose rows are counted, in fixed memory: all of the run, or the first N, from which the rest is "
        "extrapolated.",
        show_default="all, or 1,000,000 of data without an end",
    ),
]
RoundTrip = Annotated[
    float, typer.Option(min=0, help="Milliseconds that a message from a worker to the services and its answer take.")
]
DeviceOption = Annotated[str, typer.Option("--device", help="Where workers train: cpu, auto, cuda or cuda:N.")]
Threads = Annotated[int, typer.Option(min=1, help="Threads of a worker's CPU kernels.")]
Plot = Annotated[Path | None, typer.Option(help="Also draw the simulated curve to this file (needs matplotlib).")]


@takes_run_options
def command(
    chosen: RunOptions,
    memory: Memory = None,
    samples: ProfiledSamples = 100_000,
    batch_limits: BatchLimits = "16,512",
    device: DeviceOption = "cpu",
    threads: Threads = 1,
    count: Count = None,
    round_trip: RoundTrip = 0.0,
    store: Store = "memory",
    shards: Shards = 1,
    checkpoint_dir: CheckpointDir = None,
    shadows: opt.Shadows = None,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Recommends samples and cached rows per worker, a policy and rows to replicate: profiles, measures, simulates.

    Counts the rows that the tables will have, and reports the needs of each service and the limits of the run.
    """
    if plot is not None:
        check_plot(plot)  # what takes minutes is not lost to a mistake that shows at once
    advice = advise(
        chosen,
        memory=memory,
        samples=samples,
        batch_limits=batch_limits,
        device=device,
        threads=threads,
        count=count,
        round_trip=round_trip,
        services=Services(store, shards, checkpoint_dir, None if shadows is None else split_mechanisms(shadows)),
        listener=lambda step: messages.print(step, style="dim", highlight=False),
    )
    if as_json:
        print_json(advice.as_json())
    else:
        print_advice(advice)
    if plot is not None:
        save_plot(advice, plot)
