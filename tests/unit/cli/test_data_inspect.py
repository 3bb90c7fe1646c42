"""`esd data inspect` on data that a reader knows, which need no schema."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from esd.cli.main import app
from esd.services.domain.errors import InvalidArgument
from tests.support.graphs import write_graph


@pytest.mark.parametrize("name", ["graph", "criteo"])
def test_data_of_a_reader_are_refused_with_the_command_that_trains_them(name: str, tmp_path: Path) -> None:
    data = f"{name}:{write_graph(tmp_path / 'wn 18')}?part=train"
    refused = CliRunner().invoke(app, ["data", "inspect", data]).exception
    assert isinstance(refused, InvalidArgument)
    assert f"the reader {name!r} knows their columns" in str(refused)
    assert f"esd train --data '{data}'" in str(refused)


def test_a_file_that_is_named_as_a_reader_is_inspected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("flights").mkdir()
    Path("flights/a.csv").write_text("late,carrier\n" + "0,UA\n1,AA\n" * 20)
    shown = CliRunner().invoke(app, ["data", "inspect", "flights"], catch_exceptions=False)
    assert 'label = "late"' in shown.stdout
