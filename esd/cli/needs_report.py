"""The rows of a planned run and the needs of its services, as tables."""

from __future__ import annotations

from rich.table import Table

from esd.advice.needs import Needs
from esd.advice.row_counts import RowCounts

_SHOWN_TABLES = 40  # of a job with more, the largest
_PARTS = 2  # of a service's memory that are named


def rows_table(counts: RowCounts) -> Table:
    """Returns the rows of each table in the counted samples and in all samples of the run."""
    headers = ["table", "distinct\nids", "rows\nat most", "error"]
    if not counts.whole:
        headers.append("rows of all\nsamples" if counts.total is None else f"rows of\n{counts.total:,} samples")
    title = f"rows, counted over {'all ' if counts.whole else ''}{counts.samples:,} samples"
    table = Table(*headers, title=title, title_justify="left", show_edge=False, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    shown = sorted(counts.tables, key=lambda each: -each.expected)[:_SHOWN_TABLES]
    for each in counts.tables:
        if each in shown:
            table.add_row(each.name, *_figures(counts, each.ids, each.rows, each.error, each.expected))
    if len(counts.tables) > 1:
        ids, rows = (sum(getattr(each, name) for each in counts.tables) for name in ("ids", "rows"))
        table.add_row("all", *_figures(counts, ids, rows, counts.error, counts.rows), style="bold")
    return table


def needs_table(needs: Needs) -> Table:
    """Returns the memory and disk of each kind of service."""
    table = Table(
        "service", "processes", "memory of\neach, MB", "most of it, MB", "disk, MB",
        title="what each service needs at most", title_justify="left", show_edge=False, pad_edge=False,
    )  # fmt: skip
    for column in (*table.columns[1:3], table.columns[4]):
        column.justify = "right"
    for need in needs.kinds:
        largest = sorted(need.memory.items(), key=lambda part: -part[1])[:_PARTS]
        table.add_row(
            need.service if need.device == "cpu" else f"{need.service} (memory of {need.device})",
            f"{need.processes}",
            f"{need.each / 1e6:,.0f}",
            ", ".join(f"{name} {size / 1e6:,.0f}" for name, size in largest if size),
            f"{need.disk / 1e6:,.0f}" if need.disk else "",
        )
    table.add_row("all on one machine", "", f"{needs.local_memory / 1e6:,.0f}", "", "", style="bold")
    return table


def _figures(counts: RowCounts, ids: int, rows: int, error: float, expected: int) -> list[str]:
    figures = [f"{ids:,}", f"{rows:,}", f"±{error:.1%}" if error else "exact"]
    if not counts.whole:
        figures.append("unknown" if counts.total is None else f"about {expected:,}")
    return figures
