"""Nothing that the commands print is cut on a terminal of 80 columns, and no figure on a narrower one."""

from __future__ import annotations

import re

import pytest
from rich.table import Table
from typer.testing import CliRunner

from esd.cli.later import load
from esd.cli.main import COMMANDS, app
from esd.cli.tables import print_figures, print_table

SERVE_PS = "serve ps"  # the form of a store's URL is as long as it is


def commands() -> list[str]:
    """All commands, as they are typed."""
    names = []
    for name in COMMANDS:
        below = getattr(load(name), "commands", {})
        names += [f"{name} {each}" for each in below] or [name]
    return [name for name in names if name not in ("bench", SERVE_PS)]


@pytest.mark.parametrize("command", commands())
def test_help_is_whole(command: str) -> None:
    shown = CliRunner().invoke(app, [*command.split(), "--help"], env={"COLUMNS": "80"})
    assert shown.exit_code == 0
    assert "…" not in shown.stdout


def table() -> Table:
    made = Table("worker", "link,\nMbit/s", "iterations", show_edge=False, pad_edge=False)
    made.add_row("worker-0", "500.0", "1,234,567")
    made.add_row("worker-1.warehouse.lan", "50.0", "1,234,567")
    return made


@pytest.mark.parametrize("columns", [80, 45, 30, 20])
def test_rows_follow_each_other_where_a_table_has_no_room(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    print_table(table())
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= columns
    assert "…" not in shown
    if columns >= 45:
        assert re.search(r"^worker-1\.warehouse\.lan +│ +50\.0 +│ +1,234,567 *$", shown, re.MULTILINE)
    elif columns == 30:
        assert re.search(r"^worker worker-0\n +link, Mbit/s +500\.0 *\n +iterations +1,234,567 *$", shown, re.MULTILINE)


def test_a_file_gets_a_table_as_wide_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    made = Table(*(f"column {number}" for number in range(30)))
    made.add_row(*map(str, range(30)))
    print_table(made)
    assert len(capsys.readouterr().out.splitlines()) == 5


def test_figures_are_whole_beside_text_that_is_wrapped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    made = Table("", "joint", show_edge=False, pad_edge=False)
    made.add_row("gradients of replicated rows, kB per worker and iteration", "123,456,789")
    print_figures(made)
    shown = capsys.readouterr().out
    assert "123,456,789" in shown
    assert "…" not in shown
