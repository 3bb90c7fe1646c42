"""The subcommands of `esd bench`: each measures this machine or the mechanisms and prints a table or JSON."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks import plan as plans
from benchmarks import ps as rows
from benchmarks import solver as solvers
from benchmarks.alpha import run as run_alphas
from benchmarks.dispatch import balance as balances
from benchmarks.dispatch.bars import PARTS, Report, run
from benchmarks.dispatch.settings import STREAMS
from benchmarks.solver_plot import save_plot
from esd.cli import options as opt
from esd.cli.console import Json, messages
from esd.cli.report import print_json
from esd.run.options import RunOptions
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.tables import OptimizerKind
from testbed.cost_families import FAMILIES

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False)


def _joined(values: Iterable[object]) -> str:
    return ",".join(map(str, values))


BenchIterations = Annotated[int, typer.Option("--iterations", min=12, help="Iterations of every simulation.")]
Seeds = Annotated[int, typer.Option(min=1, help="Seeds 0, 1, ... of every simulation.")]


@app.callback()
def main() -> None:
    """Measures this machine and the mechanisms. A run takes minutes; docs/benchmarks/ shows the results."""


@app.command()
def dispatch(
    iterations: BenchIterations = 400,
    seeds: Seeds = 5,
    parts: Annotated[str, typer.Option(help="What to measure, comma-separated.")] = _joined(PARTS),
    data: Annotated[list[str], typer.Option(help="Stream of costs and settings; may be repeated.")] = list(STREAMS),  # noqa: B006
    as_json: Json = False,
) -> None:
    """Costs, makespans and decision times of the mechanisms, and the bars that joint must meet."""
    for name, chosen, known in (("part", parts.split(","), PARTS), ("stream", data, STREAMS)):
        for each in set(chosen).difference(known):
            raise InvalidArgument(f"{name} {each!r} is unknown; known are {'; '.join(known)}")
    report = run(iterations, range(seeds), _tell, parts.split(","), data)
    if as_json:
        print_json(report.as_json())
    else:
        _print_tables(report)


@app.command()
def balance(
    iterations: BenchIterations = 120,
    data: Annotated[str, typer.Option(help="Streams, comma-separated.")] = _joined(balances.STREAMS),
    as_json: Json = False,
) -> None:
    """Makespans under balanced workloads, beside equal ones and the best of many lists."""
    results: list[balances.Balance] = []
    for name in data.split(","):
        messages.print(f"makespans on {name}", style="dim", highlight=False)
        results += balances.compare_workloads(name, iterations)
    if as_json:
        print_json({"results": [asdict(result) for result in results]} | balances.extremes(results))
        return
    table = Table("stream", "dim", "cache", "mechanism", "equal, s", "best list, s", "balanced, s", "/ best", "/ equal")
    for r in results:
        seconds = (f"{value:.4f}" for value in (r.equal_seconds, r.best_seconds, r.balanced_seconds))
        ratios = f"{r.against_best:.3f}", f"{r.against_equal:.3f}"
        table.add_row(r.stream, str(r.dimension), f"{r.cache_ratio:.0%}", r.mechanism, *seconds, *ratios)
    Console().print(table)


@app.command()
def plan(
    data: Annotated[str, typer.Option(help="Streams, comma-separated.")] = _joined(plans.STREAMS),
    samples: Annotated[int, typer.Option(min=1000, help="First samples of each.")] = 60_000,
    as_json: Json = False,
) -> None:
    """The recommendation of `esd plan`, compared with the best of a sweep over batches and caches, simulated."""
    results = []
    for name in data.split(","):
        messages.print(f"plans for {name}", style="dim", highlight=False)
        results.append(plans.compare(name, samples))
    if as_json:
        print_json({"results": [asdict(result) for result in results]})
        return
    table = Table(
        "stream", "rows", "fit", "m", "cached", "eq. 6, hits", "hits", "time / best", "m, cached of the best",
        "cost / best at m", "simulations",
    )  # fmt: skip
    for r in results:
        sizes = f"{r.distinct_rows:,}", f"{r.rows_that_fit:,}", str(r.batch), f"{r.cache_rows:,}"
        hits = f"{r.static_hit_ratio:.3f}", f"{r.hit_ratio:.3f}"
        best = f"{r.against_best_seconds:.3f}", f"{r.best_batch}, {r.best_cache_rows:,}", f"{r.against_best_cost:.3f}"
        table.add_row(r.stream, *sizes, *hits, *best, str(r.simulations))
    Console().print(table)


@app.command()
def solver(
    workers: Annotated[str, typer.Option(help="Values of n, comma-separated.")] = _joined(solvers.WORKERS),
    batch: Annotated[str, typer.Option(help="Samples per worker m, comma-separated.")] = _joined(solvers.BATCHES),
    family: Annotated[str, typer.Option(help="Families of costs, comma-separated.")] = _joined(FAMILIES),
    names: Annotated[
        str | None, typer.Option("--solvers", help="Comma-separated; all that can run here by default.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Also draw the times to this file (needs matplotlib).")] = None,
    as_json: Json = False,
) -> None:
    """Solve times of every assignment solver and of published ones, beside Table 2 of the ESD paper."""
    device = solvers.device()
    messages.print(f"CUDA device: {device.name if device else 'none'}", style="dim", highlight=False)
    chosen = None if names is None else names.split(",")
    results = list(solvers.run(_numbers(workers), _numbers(batch), family.split(","), chosen))
    if plot is not None:
        save_plot(results, plot)
    if as_json:
        print_json({"results": [asdict(result) for result in results]})
    else:
        typer.echo(solvers.report(results))


@app.command()
def alpha(
    iterations: Annotated[int, typer.Option(min=1, help="Iterations of every simulation.")] = 60,
    as_json: Json = False,
) -> None:
    """Cost saved and GPU used by the share of the exact solver (ESD Fig. 6); without a device, the cost only."""
    results = list(run_alphas(iterations))
    if as_json:
        print_json({"results": [asdict(result) for result in results]})
        return
    against = "saved against random", "against laia (text)", "against laia (code)"
    table = Table("m", "alpha", *against, "kernel, ms", "share of the GPU")
    for r in results:
        kernel = "" if r.kernel_ms is None else f"{r.kernel_ms:.3f}"
        share = "" if r.multiprocessor_share is None else f"{r.multiprocessor_share:.1%}"
        saved = r.saved_against_random, r.saved_against_laia_text, r.saved_against_laia_code
        table.add_row(str(r.samples_per_worker), f"{r.alpha:g}", *(f"{part:.1%}" for part in saved), kernel, share)
    Console().print(table)


@app.command()
def e2e(
    data: Annotated[list[str], typer.Option(help="Data set; may be repeated.")] = ["flights", "synthetic:criteo"],  # noqa: B006
    mechanisms: Annotated[
        str, typer.Option(help="Comma-separated; joint/balanced has balanced workloads, laia/direct --direct.")
    ] = "random,laia,esd,joint",
    workers: opt.Workers = 4,
    links: opt.Links = "100m,100m,10m,10m",
    lan: opt.Lan = None,
    dense: opt.DenseSumOption = "all-reduce",
    batch: opt.Batch = 64,
    dim: opt.Dim = 128,
    cache_ratio: opt.CacheRatio = 0.08,
    optimizer: opt.Optimizer = OptimizerKind.ROWWISE_ADAGRAD,
    iterations: BenchIterations = 150,
    warm_up: Annotated[int, typer.Option(min=1, help="Iterations of a run that are not measured.")] = 20,
    turns: Annotated[int, typer.Option(min=1, help="Runs of each mechanism: A B C A B C ...")] = 3,
    network: Annotated[
        str,
        typer.Option(
            help="What holds links to their speeds: workers, as processes of this machine, or kernel, with a network "
            "namespace and one card for each worker (needs root)."
        ),
    ] = "workers",
    as_json: Json = False,
) -> None:
    """Mechanisms on real services, in turns: speed, processor time, bytes, and the bounds of an iteration.

    With --json, the object is printed after every turn, with all runs so far: the last line is the latest.
    """
    from benchmarks.e2e.comparison import compare  # noqa: PLC0415 - torch takes seconds to import
    from benchmarks.e2e.places import PLACES  # noqa: PLC0415
    from benchmarks.e2e.report import tables  # noqa: PLC0415

    if network not in PLACES:
        raise InvalidArgument(f"--network {network}: there are {', '.join(PLACES)}")
    options = RunOptions(
        workers=workers,
        links=links,
        lan=lan,
        dense_sum=dense,
        batch=batch,
        dim=dim,
        cache_ratio=cache_ratio,
        optimizer=optimizer,
        iterations=iterations,
        checkpoint_every=0,
    )
    names = mechanisms.split(",")
    runs = []
    try:
        for measured in compare(data, names, options, warm_up, turns, PLACES[network], _tell):
            runs.append(measured)
            _tell(
                f"  {measured.iterations_per_second:.2f} iterations/s, {measured.over_bound:.2f} x the larger bound of "
                f"{measured.links_ms:.1f} ms (links) and {measured.processors_ms:.1f} ms (processors)"
            )
            if as_json and len(runs) % len(names) == 0:
                print_json({"cores": os.cpu_count(), "runs": [each.as_json() for each in runs]})
    finally:  # results before an interruption are shown, too
        if not as_json:
            for table in tables(runs):
                Console().print(table)


@app.command()
def ps(
    stores: Annotated[
        str, typer.Option("--stores", help="memory, directory, redis or URLs, comma-separated.")
    ] = _joined(rows.STORES),
    dimensions: Annotated[str, typer.Option("--dims", help="Values per row, comma-separated.")] = _joined(
        rows.DIMENSIONS
    ),
    megabytes: Annotated[float, typer.Option(min=0.1, help="Of rows that a large push or pull moves.")] = 32,
    repetitions: Annotated[int, typer.Option(min=1, help="Of which the medians are shown.")] = 5,
    as_json: Json = False,
) -> None:
    """Rows to and from a parameter server: rates, and processor time at both ends, per store and row width."""
    results = []
    for store, dimension in product(stores.split(","), _numbers(dimensions)):
        _tell(f"{store}, {dimension} values")
        results.append(asyncio.run(rows.measure(store, dimension, megabytes, repetitions)))
    if as_json:
        print_json({"results": [asdict(result) for result in results]})
        return
    table = Table(
        "store", "values", "", "per second", "per processor-second", "server, ms", "client, ms",
        title="MB pushed, MB pulled, pairs of a push and a pull of 32 rows",
    )  # fmt: skip
    for r in results:
        for name, moved in (("MB pushed", r.pushes), ("MB pulled", r.pulls), ("pairs", r.pairs)):
            rates = f"{moved.per_second:.0f}", f"{moved.per_processor_second:.0f}"
            costs = f"{1e3 * moved.server_seconds:.3f}", f"{1e3 * moved.client_seconds:.3f}"
            table.add_row(r.store, str(r.dimension), name, *rates, *costs)
    Console().print(table)


def _tell(step: str) -> None:
    messages.print(step, style="dim", highlight=False)


def _numbers(text: str) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        raise InvalidArgument(f"{text!r} is no comma-separated list of numbers") from None
    if min(numbers) < 1:
        raise InvalidArgument(f"{min(numbers)} in {text!r} must be at least 1")
    return numbers


def _print_tables(report: Report) -> None:
    costs = Table("stream", "links", "workloads", "mechanism", "cost, s", "spread", "makespan, s", title="Quality")
    for q in report.quality:
        cells = f"{q.cost_seconds:.4f}", f"{q.cost_spread:.1%}", f"{q.makespan_seconds:.4f}"
        mechanism = q.mechanism if q.horizon == 1 else f"{q.mechanism}, L = {q.horizon}"
        costs.add_row(q.stream, q.links, q.workloads, mechanism, *cells)
    others = Table("stream", "m", "links", "cache", "joint, s", "best other, s", "which", "ratio", title="Settings")
    for s in report.settings:
        best = s.best_other
        seconds = f"{s.cost_seconds['joint']:.4f}", f"{s.cost_seconds[best]:.4f}"
        row = s.stream, str(s.samples_per_worker), s.links, f"{s.cache_ratio:.0%}", *seconds, best, f"{s.ratio:.3f}"
        others.add_row(*row)
    times = Table("stream", "workers", "k", "mechanism", "CPU, ms", "least", "wall, ms", title="Decision times")
    for t in [*report.speed, *report.growth]:
        cells = f"{t.cpu_ms:.3f}", f"{t.cpu_ms_least:.3f}", f"{t.wall_ms:.3f}"
        times.add_row(t.stream, str(t.workers), str(t.samples), t.mechanism, *cells)
    bars = Table("bar", "measured", "required", "met", title="Bars")
    for bar in report.bars:
        required = f"{'at least' if bar.at_least else 'at most'} {bar.limit:g}"
        bars.add_row(bar.name, f"{bar.value:.3g}", required, "yes" if bar.met else "no")
    console = Console()
    for table in (costs, others, times, bars):
        console.print(table)
