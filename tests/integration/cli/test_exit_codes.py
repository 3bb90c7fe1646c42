"""The exit codes of `esd` follow the table in docs/operations.md."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.free_port import free_port
from tests.support.command import esd_here

PAGE = Path(__file__).parents[3] / "docs/operations.md"
SCHEMA = 'label = "clicked"\nids = ["item"]\n'


def documented() -> set[int]:
    section = PAGE.read_text().partition("## Exit codes")[2].partition("\n## ")[0]
    return {int(code) for code in re.findall(r"^\| (\d+) \|", section, re.MULTILINE)}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "schema.toml").write_text(SCHEMA)
    (tmp_path / "bad.toml").write_text("label = ")
    (tmp_path / "good.csv").write_text("item,clicked\n" + "1,0\n2,1\n" * 20)
    (tmp_path / "bad.csv").write_text("item,clicked\n1,perhaps\n")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("--version", 0),
        ("simulate --data {0}/good.csv --schema {0}/schema.toml --workers 2 --batch 4 --cache-rows 9", 0),
        ("status --dispatcher 127.0.0.1:{1}", 1),
        ("simulate --lala 3", 2),
        ("simulate --workers many", 2),
        ("simulate --data {0}/good.csv --schema {0}/missing.toml", 2),
        ("simulate --data {0}/good.csv --schema {0}/bad.toml", 2),
        ("simulate --data {0}/missing.csv --schema {0}/schema.toml --cache-rows 9", 2),
        ("simulate --data {0}/bad.csv --schema {0}/schema.toml --cache-rows 9", 2),
        ("simulate --data criteo:{0}/missing.txt --cache-rows 9", 2),
        ("simulate --config {0}/missing.toml", 2),
        ("train --data flights --out {0}/good.csv/below --iterations 1", 2),
    ],
)
def test_each_end_has_the_code_of_the_table(files: Path, arguments: str, code: int) -> None:
    finished = esd_here(*arguments.format(files, free_port()).split())
    assert finished.returncode == code, finished.stderr
    assert code in documented()
    assert bool(finished.stderr) == bool(code), "a reason, or none"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_has_the_code_of_the_table(number: signal.Signals) -> None:
    """The address of the page is printed when training begins, which has far more iterations than a test has time."""
    options = "--data synthetic:criteo --workers 1 --cache-rows 9999 --iterations 1000000"
    command = [sys.executable, "-m", "esd.cli", "train", *options.split()]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        assert process.stderr is not None
        assert "live" in process.stderr.readline()
        process.send_signal(number)
        process.communicate(timeout=120)
    assert process.returncode == 128 + number
    assert process.returncode in documented()


def test_the_table_has_no_other_codes() -> None:
    assert documented() == {0, 1, 2, 128 + signal.SIGINT, 128 + signal.SIGTERM}
