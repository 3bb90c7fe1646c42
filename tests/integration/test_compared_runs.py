"""`esd page` on folders that real runs have left, and its comparison in a real browser without any server."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from esd.cli.main import app
from esd.run.event_log import EVENTS, kept
from esd.run.events import CacheBounded, Event, Resumed
from esd.run.options import RunOptions
from esd.run.output_events import EventsNotKept
from esd.run.train import train
from tests.support.browser import chromium

OPTIONS = RunOptions(
    data="synthetic:zipf?samples=1200&fields=4&keys=500", workers=1, links="100m", batch=20, dim=4, cache_rows=300,
    holdout="0.25", evaluate_every=20, seed=3,
)  # fmt: skip


def page(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["page", *map(str, arguments)])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two runs of one stream that differ by one option, and one of another stream."""
    folder = tmp_path_factory.mktemp("runs")
    options = [OPTIONS, replace(OPTIONS, learning_rate=0.5), replace(OPTIONS, data=OPTIONS.data.replace("500", "400"))]
    folders = [folder / name for name in ("slow", "<b>fast", "other")]
    for option, out in zip(options, folders, strict=True):
        asyncio.run(train(option, out=out, graphs=False))
    return folders


async def test_runs_are_compared_in_one_file(runs: list[Path], tmp_path: Path) -> None:
    made = tmp_path / "made.html"
    printed = page(*runs[:2], "--out", made)
    assert (printed.exit_code, printed.stdout) == (0, f"{made}\n"), printed.exception
    async with chromium(tmp_path / "profile") as browser:
        await browser.open(made.as_uri(), width=1280, height=900)
        await browser.until("document.getElementById('updated').textContent.startsWith('made')")
        cells: list[list[str]] = await browser.run(
            "[...document.querySelectorAll('#figures tr')]"
            ".map(row => [...row.children].map(cell => cell.innerText.trim()))"
        )
        shown = [dict(zip(cells[0], row, strict=True)) for row in cells[1:]]
        assert [each["Run"] for each in shown] == ["slow", "<b>fast"]
        for each, folder in zip(shown, runs, strict=False):
            figures = json.loads((folder / "run.json").read_text())["figures"]
            assert each["Held-out AUC"] == f"{figures['held_out']['auc']:.4f}"
            assert each["Iterations"] == "45"
        options: str = await browser.run("document.getElementById('options').innerText")
        assert options.split() == ["Run", "learning-rate", "slow", "0.02", "<b>fast", "0.5"]
        assert await browser.run("document.querySelectorAll('.chart path.series').length") == 2 * 4
        assert await browser.run("document.getElementById('notice').hidden")
        assert browser.complaints == []
        assert [url for url in browser.requested if not url.startswith("data:")] == [made.as_uri()]

        page(*runs, "--out", made)
        await browser.open(made.as_uri(), width=360, height=780, touch=True)
        await browser.until("document.getElementById('updated').textContent.startsWith('made')")
        assert (await browser.run("document.getElementById('notice').innerText")).startswith(
            "other trained other samples"
        )
        assert await browser.run("document.documentElement.scrollWidth") == 360, "wider than a phone"


def test_one_run_has_the_page_that_it_left(runs: list[Path]) -> None:
    assert page(runs[0]).stdout == f"{runs[0] / 'page.html'}\n"


@pytest.mark.parametrize(
    ("name", "content", "refusal"),
    [
        (None, "", r"nothing is not the folder of a run: No such file or directory: run.json; `esd train --out`"),
        ("run.json", "{", r"run.json cannot be read"),
        ("run.json", "[]", r"run.json is not the record of a run"),
        ("run.json", '{"format": 7}', r"run.json has format 7, this version reads 1"),
    ],
)
def test_a_folder_of_something_else_is_refused(
    runs: list[Path], tmp_path: Path, name: str | None, content: str, refusal: str
) -> None:
    folder = tmp_path / "nothing"
    if name is not None:
        folder.mkdir()
        (folder / name).write_text(content)
    with pytest.raises(Exception, match=refusal):
        raise page(runs[0], folder, "--out", tmp_path / "made.html").exception or AssertionError
    assert not (tmp_path / "made.html").exists()


def test_too_many_runs_and_a_file_that_no_browser_knows_are_refused(runs: list[Path], tmp_path: Path) -> None:
    assert "25 runs do not fit" in str(page(*runs[:1] * 25, "--out", tmp_path / "made.html").exception)
    assert "must end in .html" in str(page(*runs[:2], "--out", tmp_path / "made.txt").exception)


def test_events_that_cannot_be_kept_are_reported_once(tmp_path: Path) -> None:
    heard: list[Event] = []
    listener = kept(tmp_path / "out", heard.append)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / EVENTS).mkdir()
    events: list[Any] = [CacheBounded(7), Resumed("t", 3)]
    for event in events:
        listener(event)
    assert [type(each) for each in heard] == [EventsNotKept, CacheBounded, Resumed]
