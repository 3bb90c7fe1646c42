"""The version is written in one place, pyproject.toml, and all other places read it from there."""

from __future__ import annotations

import datetime as dt
import re
import subprocess
import tomllib
from pathlib import Path

import esd
from tests.support.command import esd as esd_command

ROOT = Path(__file__).parents[2]
VERSION: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

NAMED_BY = {"CHANGELOG.md"}


def test_the_package_and_the_command_say_it() -> None:
    assert esd.__version__ == VERSION, "run `make setup`: the installed package is of another version"
    finished = esd_command("--version")
    assert (finished.returncode, finished.stdout) == (0, f"esd {VERSION}\n")


def test_no_other_file_repeats_it() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    literal = re.compile(rf"(?<![\d.])(?<!==){re.escape(VERSION)}(?!\.?\d)")
    files = [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]
    found = {name for name in files if literal.search((ROOT / name).read_text(errors="ignore"))}
    assert found == {"pyproject.toml"} | NAMED_BY


def test_the_changelog_dates_every_version_newest_first() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    sections = re.findall(r"^## (\S+)(?: - (\S+))?$", text, re.MULTILINE)
    released = [section for section in sections if section[0] != "Unreleased"]
    assert len(sections) - len(released) <= 1
    assert released[0][0] == VERSION
    dates = [dt.date.fromisoformat(date) for _, date in released]
    assert dates == sorted(dates, reverse=True)
    versions = [tuple(map(int, version.split("."))) for version, _ in released]
    assert versions == sorted(versions, reverse=True)
