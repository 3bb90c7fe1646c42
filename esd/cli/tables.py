"""How the commands print tables: nothing of them is cut, however narrow the terminal is."""

from __future__ import annotations

import os

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

_NATURAL = 1 << 16  # columns in which any table has room


def print_table(table: Table) -> None:
    """Prints a table on standard output: row by row, as a list of its values, where the terminal has no room for it.

    A file has no width: it gets a table as wide as it needs.
    """
    console = Console()
    width = Measurement.get(console, console.options.update(width=_NATURAL, max_width=_NATURAL), table).maximum
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = max(console.width, width)
    if width <= console.width:
        console.print(table)
    else:
        _print_rows(console, table)


def print_figures(table: Table) -> None:
    """Prints a table of which the first column is text and the others are figures; the text is wrapped."""
    name, *figures = table.columns
    name.overflow = "fold"
    for figure in figures:
        figure.overflow = "fold"
        figure.no_wrap = not any(" " in str(cell) for cell in figure.cells)
    Console().print(table)


def _print_rows(console: Console, table: Table) -> None:
    if table.title:
        console.print(table.title, style="italic")
    first, *others = table.columns
    for number, name in enumerate(first.cells):
        console.print(f"{_line(first.header)} {name}".strip(), style="bold", highlight=False)
        row = Table.grid(padding=(0, 2))
        row.add_column(overflow="fold")
        row.add_column(overflow="fold")
        for column in others:
            row.add_row(f"  {_line(column.header)}", [*column.cells][number])
        console.print(row)


def _line(header: object) -> str:
    return " ".join(str(header).split())
