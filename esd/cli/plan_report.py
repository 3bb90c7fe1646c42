"""An advice of `esd plan` as tables and as a plot."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from esd.advice.advice import SHARES, Advice
from esd.cli.needs_report import needs_table, rows_table
from esd.cli.tables import print_figures, print_table
from esd.cli.teams_report import no_gain, teams_table
from esd.dispatcher.simulator.sizing.shapes import fit_shapes
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.footprint import Footprint
from esd.services.domain.sync import Proactive
from esd.services.runtime.extras import is_missing


def print_advice(advice: Advice) -> None:
    """Prints tables on standard output; the last line is the fastest command."""
    console = Console()
    tables = _profile(advice), _footprint(advice.footprint), _trials(advice), _recommended(advice)
    for table in (*tables, teams_table(advice.teams), rows_table(advice.needs.counts), needs_table(advice.needs)):
        (print_table if table.show_header else print_figures)(table)
        console.print()
    for limit in advice.limits:
        console.print(f"limit: {limit}", style="yellow", highlight=False, soft_wrap=True, markup=False)
    if not advice.teams.pays:
        console.print(no_gain(advice.teams), style="yellow", highlight=False, soft_wrap=True)
    if advice.limits or not advice.teams.pays:
        console.print()
    console.print(advice.command, soft_wrap=True, highlight=False)
    if advice.fastest_command != advice.command:
        console.print(f"\n{faster(advice)}:", highlight=False, soft_wrap=True)
        console.print(advice.fastest_command, soft_wrap=True, highlight=False)


def faster(advice: Advice) -> str:
    """Returns a sentence on the fastest team: the machines that slow the others down, and the gain without them."""
    teams = advice.teams
    links = advice.chosen.links.split(",")
    parts = []
    if teams.best.workers == 1 < advice.chosen.workers:
        parts.append(f"on machine {teams.machines[0]} alone")
    elif teams.left_out:
        slow = ", ".join(f"{machine} ({links[machine]})" for machine in teams.left_out)
        parts.append(f"without machine{'s' * (len(teams.left_out) > 1)} {slow}, which slow the others down")
    if teams.best.dense_sum != advice.chosen.dense_sum:
        parts.append(f"with --dense {teams.best.dense_sum}")
    first = teams.all[0].seconds[advice.chosen.dense_sum]
    return f"faster {' and '.join(parts)}: {1e6 * teams.seconds:,.1f} µs of a sample in place of {1e6 * first:,.1f}"


def check_plot(path: Path) -> None:
    """Looks whether a picture can be drawn to a file.

    Raises:
        InvalidArgument: matplotlib is not installed, the file's ending is none it knows, or there is no such folder.
    """
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - optional
    except ImportError:
        raise InvalidArgument(is_missing("--plot", "matplotlib", "bench")) from None
    endings = Figure().canvas.get_supported_filetypes()
    if path.suffix.removeprefix(".").lower() not in endings:
        raise InvalidArgument(f"--plot {path}: the ending is none of {', '.join(sorted(endings))}")
    if not path.parent.is_dir():
        raise InvalidArgument(f"--plot {path}: there is no folder {path.parent}")


def save_plot(advice: Advice, path: Path) -> None:
    """Draws the simulated seconds of a sample over cached rows, a line for each batch, to a file that was checked."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - optional

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for batch in sorted({trial.batch for trial in advice.trials}):
        line = sorted((trial for trial in advice.trials if trial.batch == batch), key=lambda trial: trial.cache_rows)
        axes.plot(
            [trial.cache_rows for trial in line], [1e6 * trial.seconds for trial in line], marker=".",
            label=f"{batch} samples",
        )  # fmt: skip
    axes.plot([advice.best.cache_rows], [1e6 * advice.best.seconds], "o", fillstyle="none", label="recommended")
    axes.set(xlabel="cached rows of a worker", ylabel="µs of a sample, simulated", xscale="log")
    axes.grid(visible=True, linewidth=0.3)
    axes.legend()
    figure.savefig(path)


def _profile(advice: Advice) -> Table:
    access = advice.table
    table = _two_columns(f"profile of {access.samples:,} samples")
    table.add_row("distinct rows", f"{len(access.counts):,}")
    table.add_row("lookups of a sample", f"{access.lookups_per_sample:.1f}")
    for share in SHARES:
        rows = access.rows_for(share)
        table.add_row(f"rows for {share:.0%} of the lookups", f"{rows:,} ({rows / len(access.counts):.1%})")
    for shape in fit_shapes(access.counts):
        table.add_row(f"{shape.name}, distance {shape.distance:.3f}", f"{shape.parameter:,.4g}")
    return table


def _footprint(footprint: Footprint) -> Table:
    table = _two_columns("a worker on this machine")
    table.add_row("memory of a cached row, bytes", f"{footprint.row_bytes:,.0f}")
    table.add_row("memory of a sample, kB", f"{footprint.sample_bytes / 1e3:,.1f}")
    table.add_row("memory of the rest, MB", f"{footprint.fixed_bytes / 1e6:,.0f}")
    table.add_row("computation of a sample, µs", f"{1e6 * footprint.sample_seconds:,.1f}")
    table.add_row("computation of an iteration beside, µs", f"{1e6 * footprint.step_seconds:,.0f}")
    table.add_row("messages and rows of an iteration, µs", f"{1e6 * footprint.message_seconds:,.0f}")
    return table


def _trials(advice: Advice) -> Table:
    table = Table(
        "samples\na worker", "cached\nrows", "µs of\na sample", "µs of\ntransfer", "kB of\na sample", "hit\nratio",
        title="simulated", title_justify="left", show_edge=False, pad_edge=False,
    )  # fmt: skip
    for trial in sorted(advice.trials, key=lambda trial: (trial.batch, trial.cache_rows)):
        table.add_row(
            f"{trial.batch}",
            f"{trial.cache_rows:,}",
            f"{1e6 * trial.seconds:,.1f}",
            f"{1e6 * trial.cost_seconds:,.1f}",
            f"{trial.bytes / 1e3:,.2f}",
            f"{trial.hit_ratio:.3f}",
            style="bold" if trial == advice.best else "",
        )
    return table


def _recommended(advice: Advice) -> Table:
    best, footprint = advice.best, advice.footprint
    table = _two_columns("recommended")
    table.add_row("samples per worker", f"{best.batch:,}")
    table.add_row("cached rows", f"{best.cache_rows:,} ({best.cache_rows / advice.room:.1%} of all)")
    taken = footprint.fixed_bytes + best.batch * footprint.sample_bytes + best.cache_rows * footprint.row_bytes
    table.add_row("memory, MB", f"{taken / 1e6:,.0f} of {advice.memory / 1e6:,.0f}")
    table.add_row("policy (µs of a sample by policy)", f"{advice.chosen.policy} ({_by_name(advice.policies)})")
    table.add_row("way to synchronise (µs by way)", f"{advice.chosen.sync} ({_by_name(advice.ways)})")
    if Proactive.name in advice.ways:
        table.add_row("proactive, measured live", "waits longer than on-demand")
    counted = f"of {1e3 * footprint.round_trip_seconds:g} ms" if footprint.round_trip_seconds else "beside these times"
    table.add_row(f"round trips of an iteration, at least, {counted}", f"{advice.round_trips}")
    table.add_row("by the equations, random dispatch, µs", f"{1e6 * advice.predicted_seconds:,.1f}")
    return table


def _by_name(seconds: dict[str, float]) -> str:
    return ", ".join(f"{name} {1e6 * each:,.1f}" for name, each in seconds.items())


def _two_columns(title: str) -> Table:
    table = Table(title=title, title_justify="left", show_header=False, show_edge=False, pad_edge=False)
    table.add_column()
    table.add_column(justify="right")
    return table
