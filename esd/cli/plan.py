"""`esd plan`: how a run trains fastest: samples, cached rows and replicated ones, by equations and by simulation."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from esd.advice.sizes import parse_size
from esd.cli import options as opt
from esd.cli.options import takes_run_options
from esd.cli.plan_report import Advice, check_plot, print_advice, save_plot
from esd.cli.plan_sync import ways_to_synchronise
from esd.cli.report import messages, print_json
from esd.cli.sizing import Profile, measure, predicted, simulated, size_search
from esd.run.options import BALANCED, RunOptions
from esd.services.domain.errors import InvalidArgument, ResourceExhausted
from esd.worker.service.settings import DEVICE

POLICIES = ("emark", "reuse", "lru", "lfu", "static")
_LEAST_ITERATIONS = 12  # of a simulation, a third of them to fill the caches
_BETTER = 0.99  # of the seconds of the policy, or way to synchronise, that is asked for, another one must be

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
DeviceOption = Annotated[str, typer.Option("--device", help="Where workers train: cpu, cuda or cuda:N.")]
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
    advice = advise(chosen, memory, samples, batch_limits, device, threads)
    if as_json:
        print_json(advice.as_json())
    else:
        print_advice(advice)
    if plot is not None:
        save_plot(advice, plot)


def advise(
    chosen: RunOptions, memory: str | None, samples: int, batch_limits: str, device: str, threads: int
) -> Advice:
    """Measures, searches and simulates. See `command` for the arguments."""
    _check(chosen, device)
    available = _free_memory() / 2 if memory is None else parse_size(memory)
    messages.print(f"profile of {chosen.data}", style="dim", highlight=False)
    profile = Profile.of(chosen, samples)
    batches = _batches(chosen, batch_limits, profile.table.samples)
    messages.print(f"memory and computation of {chosen.model}", style="dim", highlight=False)
    footprint = measure(chosen, profile, device, threads)
    if footprint.fixed_bytes >= available:
        raise ResourceExhausted(
            f"a worker takes {footprint.fixed_bytes / 1e6:,.0f} MB beside its samples and rows, and is given "
            f"{available / 1e6:,.0f} MB: give it more (--memory)"
        )
    search = size_search(chosen, profile, footprint, available)
    best = search.run(batches)
    policies = {chosen.policy: best}
    for policy in POLICIES:
        if policy not in policies:
            policies[policy] = simulated(
                replace(chosen, policy=policy), profile, footprint, best.batch, best.cache_rows
            )
    fastest = min(policies, key=lambda policy: policies[policy].seconds)
    if policies[fastest].seconds >= _BETTER * best.seconds:
        fastest = chosen.policy
    planned = replace(chosen, batch=best.batch, cache_rows=best.cache_rows, policy=fastest)
    ways = ways_to_synchronise(planned, profile, footprint, policies[fastest])
    sync = min(ways, key=lambda way: ways[way].seconds)
    if ways[sync].seconds >= _BETTER * policies[fastest].seconds:
        sync = chosen.sync
    return Advice(
        chosen=replace(planned, sync=sync),
        memory=available,
        table=profile.table,
        room=profile.table.room(profile.job(chosen).tables),
        footprint=footprint,
        trials=tuple(trial for trial in search.trials.values() if trial is not None),
        best=best,
        policies={policy: trial.seconds for policy, trial in policies.items()},
        predicted_seconds=predicted(chosen, profile, footprint, best.batch, best.cache_rows),
        ways={way: trial.seconds for way, trial in ways.items()},
    )


def _check(chosen: RunOptions, device: str) -> None:
    """Raises InvalidArgument for what can be told before anything is read or measured."""
    if chosen.cache_rows is not None or chosen.cache_ratio is not None:
        raise InvalidArgument("--cache-rows and --cache-ratio are what esd plan finds: leave them out")
    if chosen.workloads not in (None, "equal", BALANCED):
        raise InvalidArgument(f"esd plan finds the samples per worker: --workloads is equal or {BALANCED}, not a list")
    if chosen.hot_batches:
        raise InvalidArgument("esd plan finds batches of samples as they come: leave out --hot-batches")
    if chosen.max_rows:
        raise InvalidArgument("esd plan has no --max-rows: it counts what all rows of the data need")
    if not re.fullmatch(DEVICE, device):
        raise InvalidArgument(f"--device is {device!r}, it must be cpu, cuda or cuda:N")
    chosen.bandwidths()  # looks at the links


def _batches(chosen: RunOptions, limits: str, samples: int) -> list[int]:
    """Returns the samples per worker to choose from: the one that is given, or powers of two within the limits."""
    if chosen.batch is not None:
        least = most = chosen.batch
    else:
        try:
            least, most = (int(part) for part in limits.split(","))
        except ValueError:
            raise InvalidArgument(f"--batch-limits {limits!r} is not two whole numbers: 16,512") from None
        if not 1 <= least <= most:
            raise InvalidArgument(f"--batch-limits {limits!r} must be at least 1, the least first")
    powers = [2**power for power in range(most.bit_length()) if least <= 2**power <= most]
    batches = [batch for batch in powers or [least] if samples >= _LEAST_ITERATIONS * batch * chosen.workers]
    if chosen.batch is not None and chosen.batch not in batches:
        batches = [chosen.batch] if samples >= _LEAST_ITERATIONS * chosen.batch * chosen.workers else []
    if not batches:
        raise InvalidArgument(
            f"{samples} profiled samples are fewer than {_LEAST_ITERATIONS} iterations of {least} samples at "
            f"{chosen.workers} workers: profile more (--samples), or choose smaller batches"
        )
    return batches


def _free_memory() -> float:
    """Returns the bytes that this machine can give to new processes."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return 1024.0 * int(line.split()[1])
    raise InvalidArgument("this system does not tell how much memory is free: give --memory")
