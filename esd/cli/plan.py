"""`esd plan` recommends samples, cached rows and replicated ones, and the way to synchronise."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from esd.advice.advise import advise
from esd.cli import options as opt
from esd.cli.console import messages
from esd.cli.options import takes_run_options
from esd.cli.plan_report import check_plot, print_advice, save_plot
from esd.cli.report import print_json
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
    plot: Plot = None,
    as_json: opt.Json = False,
) -> None:
    """Recommends samples and cached rows per worker, a policy and rows to replicate: profiles, measures, simulates."""
    if plot is not None:
        check_plot(plot)  # what takes minutes is not lost to a mistake that shows at once
    advice = advise(
        chosen,
        memory=memory,
        samples=samples,
        batch_limits=batch_limits,
        device=device,
        threads=threads,
        listener=lambda step: messages.print(step, style="dim", highlight=False),
    )
    if as_json:
        print_json(advice.as_json())
    else:
        print_advice(advice)
    if plot is not None:
        save_plot(advice, plot)
